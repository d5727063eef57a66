// The part of a tensor that a rank holds where ranks share layers (models/block.h, Part): cutting
// it out, joining parts, and its position in the whole tensor. Pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trireme/models/block.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0::parallel {

/// Cuts this part out of the whole tensor; contiguous.
at::Tensor part_of(const at::Tensor& whole, const models::Part& part);
/// The whole tensor, from all tensor-parallel ranks' parts in order; `part` is that of any of them.
/// For experts, `parts` are from the ranks that hold them.
at::Tensor whole_of(const std::vector<at::Tensor>& parts, const models::Part& part);
/// The first element along `dim` of a section that the part holds.
std::int64_t begin_of(const models::Part& part);
/// Shapes of a part and of the whole.
std::vector<std::int64_t> shape_of_part(std::vector<std::int64_t> whole, const models::Part& part);
std::vector<std::int64_t> shape_of_whole(std::vector<std::int64_t> own, const models::Part& part);

/// The part of `rank` in a group ordered by expert coordinate, then by tensor coordinate (e x
/// tensor_ranks + t); `part` is that of any rank.
models::Part part_on(models::Part part, int rank, int tensor_ranks);
/// Whether `rank` is the first that holds its elements. Those ranks hold every element once.
bool is_first_with(const models::Part& part, int rank, int tensor_ranks);

/// Converts a shard of a part (its shape, and an interval of that) to shards of the whole tensor,
/// one for each run of elements that is contiguous there too. They alias `own.local`.
std::vector<NamedShard> shards_of_whole(const NamedShard& own, const models::Part& part);

}  // namespace trireme::inline v0::parallel
