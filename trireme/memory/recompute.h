// Recomputation: forward passes that keep their inputs alone, and run again when backward comes to
// them (Chen et al. 2016, "Training deep nets with sublinear memory cost", arXiv:1604.06174). Same
// kernels, same inputs: no bit changes. Usable alone, on any LibTorch code. Thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/models/activations.h"

namespace trireme {
inline namespace v0 {
namespace memory {

using Forward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

/// LibTorch's default generator gives the second run what it gave the first; false: `forward` seeds
/// what it draws from itself.
enum class Draws { Again, OwnSeed };

/// forward(inputs). What `forward` saves for backward is let go of at once; backward runs it a
/// second time, under the autocast of the first, and then back, calling the hooks of the leaves it
/// uses as ever. `forward` lives until then and must not change what it reads. With gradients off
/// it simply runs.
std::vector<at::Tensor> recompute(const Forward& forward, const std::vector<at::Tensor>& inputs,
                                  Draws draws = Draws::Again);
/// The same for a module or function of one tensor.
at::Tensor recompute(const std::function<at::Tensor(const at::Tensor&)>& forward,
                     const at::Tensor& input);

/// Which blocks of a list are run again: memory.recompute.
struct RecomputePolicy {
  /// Attention keeps no probabilities (tensor/functions.h), whatever the length.
  bool attention = false;
  /// Every so-manyth block is run again; 0: none.
  std::size_t every = 0;
  /// The last block is kept: its backward comes at once.
  bool runs_again(std::size_t block, std::size_t blocks) const {
    return every > 0 && block + 1 < blocks && (block + 1) % every == 0;
  }
  bool any() const { return attention || every > 0; }
};
/// none | selective (attention alone) | full | every-K (full is every-1). ConfigError for others.
RecomputePolicy parse_recompute(const std::string& text);

/// The most bytes of activations at a time in a forward and a backward pass: what stays, and of the
/// blocks that run again the inputs, and one of them whole.
std::int64_t peak_activations(const std::vector<models::BlockActivations>& blocks,
                              const RecomputePolicy& policy);
/// What is computed a second time, over the work of forward and backward (twice a forward pass);
/// 0 where the work is not known.
double share_again(const std::vector<models::BlockActivations>& blocks,
                   const RecomputePolicy& policy);

}  // namespace memory
}  // namespace v0
}  // namespace trireme
