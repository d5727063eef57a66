// GPT (Radford et al. 2019; shapes and initial values as nanoGPT): token and position embedding,
// pre-norm blocks of causal attention and an MLP (or a mixture of experts), a final norm, and a
// head tied to the embedding.
//
// Blocks "embed", "layer.0" ... "layer.L-1", "head"; the output value is logits [B, T, vocab].
// Initial values are keyed by (seed, parameter name): any rank builds any block alone, with the
// same values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/models/block.h"

namespace trireme::inline v0 {
namespace models {

struct BlockActivations;
struct Kernel;
class LayerFactory;

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

/// Parameters of that model; the tied head counts once.
std::int64_t num_parameters(const GptConfig& config);
/// Parameters of the pair of neighbouring blocks that has most; ZeRO-3 holds that many whole at a
/// time. The head's block counts its tied embedding.
std::int64_t largest_neighbours(const GptConfig& config);
/// Channels inside the MLP, and inside each expert.
std::int64_t feed_forward_width(const GptConfig& config);
/// Parameters of all experts of one layer; 0 without experts.
std::int64_t expert_parameters(const GptConfig& config);
/// How many of the two blocks of largest_neighbours() are layers.
int largest_neighbouring_layers(const GptConfig& config);
/// Floating-point operations of one training step (forward and backward) over `tokens` tokens.
double training_flops(const GptConfig& config, std::int64_t tokens);
/// Per block, for a micro-batch of `sequences`.
std::vector<BlockActivations> block_activations(const GptConfig& config, std::int64_t sequences);
/// The kernels of one micro-batch.
std::vector<Kernel> kernels(const GptConfig& config, std::int64_t sequences);

}  // namespace models
using models::GptConfig;
}  // namespace trireme::inline v0
