// Recomputation: a forward pass keeps only its inputs, and runs again when backward needs it (Chen
// et al. 2016, "Training deep nets with sublinear memory cost", arXiv:1604.06174). Same kernels,
// same inputs: no bit changes. Works on any LibTorch code. Thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trireme::inline v0::models {
struct BlockActivations;
}

namespace trireme::inline v0::memory {

using Forward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

/// How the second run gets the random numbers of the first. Again: LibTorch's default generators of
/// the CPU and of the inputs' devices are reset to their earlier states. OwnSeed: `forward` seeds
/// the generators itself.
enum class Draws { Again, OwnSeed };

/// Returns forward(inputs) without keeping what `forward` saves for backward. Backward runs
/// `forward` a second time, with the first run's autocast state, and then its backward. Hooks of
/// leaves run once for each recomputed part; DataParallel and Strategy refuse a parameter that is
/// in more than one such part. A copy of `forward` is kept until then; `forward` must not change
/// what it reads. Without gradient mode, just runs `forward`.
std::vector<at::Tensor> recompute(const Forward& forward, const std::vector<at::Tensor>& inputs,
                                  Draws draws = Draws::Again);
/// recompute() for a module or function of one tensor.
at::Tensor recompute(const std::function<at::Tensor(const at::Tensor&)>& forward,
                     const at::Tensor& input);

/// For hooks of leaves: whether this thread is in the backward pass of a recomputed part.
bool in_recomputed_backward() noexcept;

/// The policy of one block. None keeps everything. Selective: attention keeps no probabilities
/// (tensor/functions/functions.h), whatever the length. Full keeps only the block's input.
enum class Recompute : std::uint8_t { None, Selective, Full };

/// memory.recompute: which activations each block of a model computes again.
struct RecomputePolicy {
  Recompute kind = Recompute::None;
  std::size_t every = 1;                 // `Full` applies to every `every`-th block
  std::vector<Recompute> of_block = {};  // if not empty, overrides both: one policy per block
  /// The policy of block `block`. The last block is never `Full`: its backward follows immediately.
  Recompute of(std::size_t block, std::size_t blocks) const;
};
/// Parses none | selective | full | every-K (full is every-1), or a list with one word per block:
/// "full*3, none*2, selective". Throws ConfigError for anything else.
RecomputePolicy parse_recompute(const std::string& text);
/// For a model of `blocks` blocks: throws ConfigError, too, if a list has another length.
RecomputePolicy parse_recompute(const std::string& text, std::size_t blocks);
/// "none", "selective", "full".
std::string name_of(Recompute kind);
/// A list as parse_recompute() reads it.
std::string to_text(const std::vector<Recompute>& of_block);

/// A block's memory and time under a policy.
struct BlockCost {
  std::int64_t stays = 0;  // bytes from its forward pass to its backward pass
  std::int64_t once = 0;   // bytes during its backward pass alone; one block at a time has these
  double again = 0;        // recomputed work
};
/// `last`: the block is the model's last, so its backward follows immediately.
BlockCost cost_of(const models::BlockActivations& block, Recompute kind, bool last);

/// A model's activations under a policy, over a forward and a backward pass of one micro-batch.
struct ActivationCosts {
  std::int64_t peak = 0;  // bytes: `stays` of all blocks and the largest `once`
  /// `peak` when an ActivationFile keeps what blocks save: the bytes of the block that runs and of
  /// the block before it, which is being written or fetched.
  std::int64_t peak_offloaded = 0;
  std::int64_t file = 0;  // bytes in that file: `stays` of all blocks except the last
  /// Recomputed work as a share of forward and backward (three forward passes); 0 if not known.
  double share_again = 0;
};
ActivationCosts costs_of(const std::vector<models::BlockActivations>& blocks,
                         const RecomputePolicy& policy);

}  // namespace trireme::inline v0::memory
