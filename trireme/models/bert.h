// BERT's encoder (Devlin et al. 2018, arXiv:1810.04805) and its masked-token head, without segments
// and without the sentence head: token and position embedding, post-norm blocks of bidirectional
// attention and a GELU MLP (tanh form), and an output tied to the embedding.
//
// Blocks "embed", "layer.0" ... "layer.L-1", "head"; the first reads the batch field "tokens"
// [B, T], the output value is logits [B, T, vocab]. Every token attends to all T: sequences are
// full. Initial values are keyed by (seed, parameter name).
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

/// Parameters of that model; the tied output counts once.
std::int64_t num_parameters(const BertConfig& config);
/// Parameters of the pair of neighbouring blocks that has most. The head counts its tied embedding.
std::int64_t largest_neighbours(const BertConfig& config);
/// Channels inside the MLP.
std::int64_t feed_forward_width(const BertConfig& config);
/// Floating-point operations of one training step over `tokens` tokens.
double training_flops(const BertConfig& config, std::int64_t tokens);
/// Per block, for a micro-batch of `sequences`.
std::vector<BlockActivations> block_activations(const BertConfig& config, std::int64_t sequences);
/// The kernels of one micro-batch.
std::vector<Kernel> kernels(const BertConfig& config, std::int64_t sequences);

}  // namespace models
using models::BertConfig;
}  // namespace trireme::inline v0
