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

/// Of one block. Selective: attention keeps no probabilities (tensor/functions.h), whatever the
/// length.
enum class Recompute : std::uint8_t { None, Selective, Full };

/// What is computed again of each block of a list: memory.recompute.
struct RecomputePolicy {
  Recompute kind = Recompute::None;
  std::size_t every = 1;                 // Full: of every so-manyth block
  std::vector<Recompute> of_block = {};  // in the place of both: of each
  /// The last block is not run again: its backward comes at once.
  Recompute of(std::size_t block, std::size_t blocks) const;
};
/// none | selective | full | every-K (full is every-1), or a list, a word a block: "full*3, none*2,
/// selective". ConfigError for others.
RecomputePolicy parse_recompute(const std::string& text);
/// The same for a model of so many blocks: ConfigError where a list is of another length.
RecomputePolicy parse_recompute(const std::string& text, std::size_t blocks);
/// "none", "selective", "full".
std::string name_of(Recompute kind);
/// A list as parse_recompute() reads it.
std::string to_text(const std::vector<Recompute>& of_block);

/// What a block takes of memory and time, one way or another.
struct BlockCost {
  std::int64_t stays = 0;  // bytes from its forward pass to its backward pass
  std::int64_t once = 0;   // bytes while its backward pass runs, when no other block has such
  double again = 0;        // work that is done a second time
};
/// `last`: its backward comes at once, before any other block's bytes come back.
BlockCost cost_of(const models::BlockActivations& block, Recompute kind, bool last);

/// The most bytes of activations at a time in a forward and a backward pass: what stays, and of the
/// blocks that run again the inputs, and one of them whole.
std::int64_t peak_activations(const std::vector<models::BlockActivations>& blocks,
                              const RecomputePolicy& policy);
/// The same where what blocks save goes to a file (activation_file.h): of the block that runs, of
/// the one before it, which is written or fetched, and what is there once.
std::int64_t peak_of_offloaded(const std::vector<models::BlockActivations>& blocks,
                               const RecomputePolicy& policy);
/// What the file then holds: all that stays of all blocks but the last.
std::int64_t bytes_of_offloaded(const std::vector<models::BlockActivations>& blocks,
                                const RecomputePolicy& policy);
/// What is computed a second time, over the work of forward and backward (twice a forward pass);
/// 0 where the work is not known.
double share_again(const std::vector<models::BlockActivations>& blocks,
                   const RecomputePolicy& policy);

}  // namespace memory
}  // namespace v0
}  // namespace trireme
