#include "trireme/sync/cut_sync.h"

#include <array>
#include <limits>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/kernel/elementwise.h"
#include "trireme/layers/tensor/part.h"

namespace trireme::inline v0::parallel {

CutSync::CutSync(std::unique_ptr<StepSync> own, comm::Communicator& group, int tensor_ranks,
                 const ModelParts& parts)
    : own_(std::move(own)), group_(group), tensor_ranks_(tensor_ranks), parts_(parts) {}

std::size_t CutSync::num_chunks(const ModelTensor& parameter, int rank) const {
  const models::Part part = part_on(parameter.part, rank, tensor_ranks_);
  std::int64_t count = 1;
  for (const std::int64_t size : shape_of_part(shape_of_whole(parameter.shape, part), part))
    count *= size;
  const auto chunk = static_cast<std::int64_t>(kernel::kNormChunk);
  return static_cast<std::size_t>((count + chunk - 1) / chunk);
}

std::vector<double> CutSync::chunk_squares() {
  std::vector<double> mine = own_->chunk_squares();
  const auto ranks = static_cast<std::size_t>(group_.size());
  std::vector<std::size_t> counts(ranks), at(ranks);
  std::size_t total = 0;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    for (const ModelTensor& one : parts_.parameters()) counts[i] += num_chunks(one, rank);
    at[i] = total;
    total += counts[i];
  }
  TRIREME_CHECK(mine.size() == counts[static_cast<std::size_t>(group_.rank())]);
  std::vector<double> all(total), squares;
  group_
      .all_gather_v(Buffer::of(std::span(mine)), Buffer::of(std::span(all)), counts,
                    {.label = "gradient norm"})
      .wait();
  for (const ModelTensor& one : parts_.parameters()) {
    for (int rank = 0; rank < group_.size(); ++rank) {
      const std::size_t chunks = num_chunks(one, rank);
      std::size_t& next = at[static_cast<std::size_t>(rank)];
      if (is_first_with(one.part, rank, tensor_ranks_))
        for (std::size_t i = 0; i < chunks; ++i) squares.push_back(all[next + i]);
      next += chunks;
    }
  }
  return squares;
}

std::int64_t CutSync::first_overflow() {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  const std::int64_t mine = own_->first_overflow();
  std::array<std::int64_t, 1> first{mine < 0 ? kNone : mine};
  group_
      .all_reduce(Buffer::of(std::span<std::int64_t>(first)), ReduceOp::Min,
                  {.label = "first overflow"})
      .wait();
  return first[0] == kNone ? -1 : first[0];
}

}  // namespace trireme::inline v0::parallel
