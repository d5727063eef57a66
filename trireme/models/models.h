// The models that ship: a configuration each, and a function that makes a model, a list of blocks.
//
// Initial values are keyed by (seed, parameter name): any rank builds any block alone, with the
// same values. Their figures are in figures.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/models/block.h"

namespace trireme::inline v0 {
namespace models {

class LayerFactory;

/// GPT (Radford et al. 2019; shapes and initial values as nanoGPT): token and position embedding,
/// pre-norm blocks of causal attention and an MLP (or a mixture of experts), a final norm, and a
/// head tied to the embedding.
///
/// Blocks "embed", "layer.0" ... "layer.L-1", "head"; the output value is logits [B, T, vocab].
struct GptConfig {
  int layers = 4, heads = 4;
  std::int64_t width = 128;
  std::int64_t block = 64;  // sequence length
  std::int64_t vocab = 256;
  bool bias = false;  // in linear layers and norms
  /// gelu | swiglu | geglu (models/feed_forward.h), and the MLP's width; 0: see hidden_width().
  std::string activation = "gelu";
  std::int64_t hidden = 0;
  /// Experts in each layer in place of the MLP, each as wide as it (models/experts.h); 0: an MLP. A
  /// token goes to `top_k` experts; each takes capacity_factor top_k T / experts choices of a
  /// sequence. `balance` times Mixed::balance is added for gradients, but not to the reported loss.
  int experts = 0, top_k = 2;
  double capacity_factor = 1.25, balance = 0.01;
  /// Dropout of the embeddings and of the outputs of attention and MLP; active in training only.
  double dropout = 0;
  std::string precision = "fp32";  // fp64 | fp32 | bf16 | fp16
  std::uint64_t seed = 1;
};

/// Throws ConfigError if the numbers do not fit (width not divisible by heads, something below 1).
/// Null `layers`: current_layers() when a block is built.
Blocks make_gpt(const GptConfig& config, std::shared_ptr<const LayerFactory> layers = nullptr);

/// BERT's encoder (Devlin et al. 2018, arXiv:1810.04805) and its masked-token head, without
/// segments and without the sentence head: token and position embedding, post-norm blocks of
/// bidirectional attention and a GELU MLP (tanh form), and an output tied to the embedding.
///
/// Blocks "embed", "layer.0" ... "layer.L-1", "head"; the first reads the batch field "tokens"
/// [B, T]; the output is logits [B, T, vocab]. Sequences are full: every token attends to all T.
struct BertConfig {
  int layers = 12, heads = 12;
  std::int64_t width = 768;
  std::int64_t block = 128;  // sequence length
  std::int64_t vocab = 30522;
  /// Dropout of the embeddings and of the outputs of attention and MLP; active in training only.
  double dropout = 0;
  std::string precision = "fp32";  // fp64 | fp32 | bf16 | fp16
  std::uint64_t seed = 1;
};

/// Throws ConfigError if the numbers do not fit (width not divisible by heads, something below 1).
/// Null `layers`: current_layers() when a block is built.
Blocks make_bert(const BertConfig& config, std::shared_ptr<const LayerFactory> layers = nullptr);

/// ResNet for images of 32 x 32 pixels (He et al. 2015, arXiv:1512.03385; layers and initial values
/// as torchvision's, with the stem that CIFAR-10 takes: a 3 x 3 convolution and no pooling).
///
/// Blocks "stem", "layer1.0" ... "layer4.1", "head" (torchvision's "fc"); each residual block is
/// one. The first reads the batch field "images" [b, 3, side, side]; the output is logits [b,
/// classes]. Parameters within a block have torchvision's names ("conv1.weight", "bn1.weight",
/// "downsample.0.weight"). Batch norm's buffers are fp32 (fp64 under fp64); its statistics are
/// those of a micro-batch.
struct ResnetConfig {
  std::array<int, 4> layers = {2, 2, 2, 2};  // residual blocks of each stage: ResNet-18
  std::int64_t width = 64;                   // channels of the first stage; doubled in each
  std::int64_t side = 32, classes = 10;
  /// fp64 | fp32 | bf16 | fp16, of convolutions and activations. Norms' parameters and statistics
  /// are at least fp32.
  std::string precision = "fp32";
  std::uint64_t seed = 1;
};

/// Throws ConfigError if a number is below 1 or the side is not divisible by 8.
Blocks make_resnet(const ResnetConfig& config);

/// A plain multi-layer perceptron: the smallest model, for tests and examples.
struct MlpConfig {
  std::vector<std::int64_t> widths = {784, 128, 10};  // input, hidden ..., output
  std::string precision = "fp32";
  std::uint64_t seed = 1;
  std::string input = "features";  // the batch field it reads, [b, widths[0]]
};

/// Blocks "layer.0" ... (linear with bias, GELU between them); the output is [b, widths.back()].
/// ConfigError for fewer than two widths, or one below 1.
Blocks make_mlp(const MlpConfig& config);

}  // namespace models
using models::BertConfig;
using models::GptConfig;
using models::MlpConfig;
using models::ResnetConfig;
}  // namespace trireme::inline v0
