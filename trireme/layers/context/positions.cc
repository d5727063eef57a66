#include "trireme/layers/context/positions.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include "trireme/base/check.h"
#include "trireme/layers/shares.h"

namespace trireme::inline v0::parallel {

at::Tensor cut_positions(const at::Tensor& whole, std::int64_t dim, int rank, int ranks) {
  TRIREME_CHECK(rank >= 0);
  TRIREME_CHECK(rank < ranks);
  if (ranks == 1) return whole.contiguous();
  const std::int64_t chunk = check_context_share(whole.size(dim), ranks);
  return at::cat({whole.narrow(dim, rank * chunk, chunk),
                  whole.narrow(dim, (2 * ranks - 1 - rank) * chunk, chunk)},
                 dim);
}

at::Tensor positions_of(std::int64_t length, int rank, int ranks) {
  return cut_positions(at::arange(length, at::kLong), 0, rank, ranks);
}

at::Tensor join_positions(const std::vector<at::Tensor>& parts, std::int64_t dim) {
  if (parts.size() == 1) return parts.front();
  const std::int64_t chunk = parts.front().size(dim) / 2;
  std::vector<at::Tensor> chunks;
  for (const at::Tensor& part : parts) chunks.push_back(part.narrow(dim, 0, chunk));
  for (auto part = parts.rbegin(); part != parts.rend(); ++part)
    chunks.push_back(part->narrow(dim, chunk, chunk));
  return at::cat(chunks, dim);
}

MicroBatch cut_positions(const MicroBatch& whole, int rank, int ranks) {
  const std::int64_t length = whole.field("tokens").size(1);
  MicroBatch own = whole;
  for (auto& [name, field] : own.fields)
    if (field.dim() >= 2 && field.size(1) == length) field = cut_positions(field, 1, rank, ranks);
  return own;
}

}  // namespace trireme::inline v0::parallel
