// Figures of the models in models.h: parameters, work, activations, kernels. Nothing is built.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/models/models.h"

namespace trireme::inline v0::models {

/// The memory that a block keeps between its forward and its backward pass, and the work of
/// recomputing it, for one micro-batch. Sizes are in bytes. Work is in floating-point operations,
/// or in seconds if no formula is known; all blocks of a model use the same unit. 0: unknown.
struct BlockActivations {
  std::int64_t kept = 0;
  std::int64_t probabilities = 0;  // attention's share of `kept`, which recomputation can avoid
  std::int64_t inputs = 0;         // what the forward pass needs to run again
  double forward_work = 0;         // of a forward pass
  double scores_work = 0;          // of recomputing the probabilities
  /// The share of `kept` between layers that tensor parallelism cuts. Every tensor-parallel rank
  /// keeps all of it, unless sequence parallelism cuts it too.
  std::int64_t whole = 0;
};

/// One kind of call in a training step, forward and backward. A plan adds up their times
/// (train/plan/kernel_speeds.h); train/plan/kernel_runs.cc lists the names.
struct Kernel {
  std::string name;
  std::vector<std::int64_t> sizes;  // its loops, such as rows, in, out
  double calls = 1;
};

/// Parameters of the model; a tied head counts once.
std::int64_t num_parameters(const GptConfig& config);
std::int64_t num_parameters(const BertConfig& config);
std::int64_t num_parameters(const ResnetConfig& config);

/// Parameters of the largest pair of neighbouring blocks: ZeRO-3 holds that many whole at a time. A
/// head counts its tied embedding.
std::int64_t largest_neighbours(const GptConfig& config);
std::int64_t largest_neighbours(const BertConfig& config);
std::int64_t largest_neighbours(const ResnetConfig& config);

/// Floating-point operations of one training step (forward and backward).
double training_flops(const GptConfig& config, std::int64_t tokens);
double training_flops(const BertConfig& config, std::int64_t tokens);
double training_flops(const ResnetConfig& config, std::int64_t images);

/// Per block, for a micro-batch of `sequences` or `images`.
std::vector<BlockActivations> block_activations(const GptConfig& config, std::int64_t sequences);
std::vector<BlockActivations> block_activations(const BertConfig& config, std::int64_t sequences);
std::vector<BlockActivations> block_activations(const ResnetConfig& config, std::int64_t images);

/// The kernels of one micro-batch.
std::vector<Kernel> kernels(const GptConfig& config, std::int64_t sequences);
std::vector<Kernel> kernels(const BertConfig& config, std::int64_t sequences);
std::vector<Kernel> kernels(const ResnetConfig& config, std::int64_t images);

/// Channels inside the MLP, and inside each expert.
std::int64_t feed_forward_width(const GptConfig& config);
std::int64_t feed_forward_width(const BertConfig& config);
/// Parameters of all experts of one layer; 0 without experts.
std::int64_t expert_parameters(const GptConfig& config);
/// How many of the two blocks of largest_neighbours() are layers.
int largest_neighbouring_layers(const GptConfig& config);

}  // namespace trireme::inline v0::models
