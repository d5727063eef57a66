// What a rank has of a tensor where ranks share layers (models/block.h, Part): cut out, put
// together again, and where it lies in the whole one. Pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trireme/models/block.h"
#include "trireme/tensor/state.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

/// Cuts this part out of the whole tensor; contiguous.
at::Tensor part_of(const at::Tensor& whole, const models::Part& part);
/// The whole tensor, from all tensor-parallel ranks' parts in order; `part` is anyone's. Of
/// experts, from those at its holder's place.
at::Tensor whole_of(const std::vector<at::Tensor>& parts, const models::Part& part);
/// The first element along `dim` that the part has of a section.
std::int64_t begin_of(const models::Part& part);
/// Shapes of a part and of the whole.
std::vector<std::int64_t> shape_of_part(std::vector<std::int64_t> whole, const models::Part& part);
std::vector<std::int64_t> shape_of_whole(std::vector<std::int64_t> own, const models::Part& part);

/// Who has what among ranks that stand side by side by expert coordinate, then by tensor coordinate
/// (e x tensor_ranks + t): the part of `rank`, of which `part` is anyone's.
models::Part part_on(models::Part part, int rank, int tensor_ranks);
/// Whether `rank` is the first that has its elements: together such ranks have every element once.
bool is_first_with(const models::Part& part, int rank, int tensor_ranks);

/// A shard of a part (its shape, and an interval of that) as shards of the whole tensor, one for
/// each run of elements that lie side by side there, too. They alias `own.local`.
std::vector<NamedShard> shards_of_whole(const NamedShard& own, const models::Part& part);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
