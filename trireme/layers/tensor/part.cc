#include "trireme/layers/tensor/part.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>

namespace trireme::inline v0::parallel {

using models::Part;

namespace {

// The part's first element, and its length, in one section of `n` elements.
std::int64_t first(std::int64_t n, const Part& part, int rank) { return n * rank / part.of; }
std::int64_t length(std::int64_t n, const Part& part, int rank) {
  return first(n, part, rank + 1) - first(n, part, rank);
}

}  // namespace

at::Tensor part_of(const at::Tensor& whole, const Part& part) {
  if (!part.here()) return whole.narrow(part.dim, 0, 0).contiguous();
  if (part.of == 1) return whole.contiguous();
  const std::int64_t n = part.whole / part.sections;
  std::vector<at::Tensor> cuts;
  for (int section = 0; section < part.sections; ++section)
    cuts.push_back(whole.narrow(part.dim, section * n + first(n, part, part.index),
                                length(n, part, part.index)));
  return at::cat(cuts, part.dim).contiguous();
}

at::Tensor whole_of(const std::vector<at::Tensor>& parts, const Part& part) {
  if (part.of == 1) return parts.front();
  const std::int64_t n = part.whole / part.sections;
  std::vector<at::Tensor> cuts;
  for (int section = 0; section < part.sections; ++section) {
    for (int rank = 0; rank < part.of; ++rank) {
      const std::int64_t size = length(n, part, rank);
      cuts.push_back(parts[static_cast<std::size_t>(rank)].narrow(part.dim, section * size, size));
    }
  }
  return at::cat(cuts, part.dim);
}

std::int64_t begin_of(const Part& part) {
  return first(part.whole / part.sections, part, part.index);
}

std::vector<std::int64_t> shape_of_part(std::vector<std::int64_t> whole, const Part& part) {
  const auto dim = static_cast<std::size_t>(part.dim);
  if (!part.here()) {
    whole[dim] = 0;
  } else if (part.of > 1) {
    whole[dim] = part.sections * length(part.whole / part.sections, part, part.index);
  }
  return whole;
}

std::vector<std::int64_t> shape_of_whole(std::vector<std::int64_t> own, const Part& part) {
  if (!part.everywhere()) own[static_cast<std::size_t>(part.dim)] = part.whole;
  return own;
}

Part part_on(Part part, int rank, int tensor_ranks) {
  if (part.places > 1) part.place = rank / tensor_ranks;
  if (part.of > 1) part.index = rank % tensor_ranks;
  return part;
}

bool is_first_with(const Part& part, int rank, int tensor_ranks) {
  const int place = rank / tensor_ranks, index = rank % tensor_ranks;
  return place == part.holder && (part.of > 1 || index == 0);
}

// Legend: a tensor is [outer, dim, inner], its dim is sections of n; a part has m of each n.
std::vector<NamedShard> shards_of_whole(const NamedShard& own, const Part& part) {
  if (!part.here()) return {};
  if (part.of == 1) return {own};
  const std::vector<std::int64_t> shape = shape_of_whole(own.shape, part);
  const std::int64_t inner = c10::multiply_integers(shape.begin() + part.dim + 1, shape.end());
  const std::int64_t n = part.whole / part.sections;
  const std::int64_t run = length(n, part, part.index) * inner;  // contiguous elements
  std::vector<NamedShard> shards;
  if (run == 0) return shards;
  const at::Tensor flat = own.local.flatten();
  for (std::int64_t at = own.begin; at < own.end;) {
    const std::int64_t number = at / run, end = std::min(own.end, (number + 1) * run);
    const std::int64_t outer = number / part.sections, section = number % part.sections;
    const std::int64_t begin =
        (outer * part.whole + section * n + begin_of(part)) * inner + at % run;
    shards.push_back({.name = own.name,
                      .dtype = own.dtype,
                      .shape = shape,
                      .begin = begin,
                      .end = begin + end - at,
                      .local = flat.narrow(0, at - own.begin, end - at)});
    at = end;
  }
  return shards;
}

}  // namespace trireme::inline v0::parallel
