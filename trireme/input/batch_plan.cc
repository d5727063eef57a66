#include "trireme/input/batch_plan.h"

#include <algorithm>
#include <string>

#include "trireme/base/check.h"
#include "trireme/base/refuse.h"

namespace trireme::inline v0::input {

std::int64_t batches_per_epoch(std::int64_t n, std::int64_t batch) {
  return (n + batch - 1) / batch;
}

GlobalBatch global_batch(std::int64_t number, std::int64_t n, std::int64_t batch) {
  TRIREME_CHECK(batch > 0);
  if (n == 0) return {.first = number * batch, .count = batch};
  const std::int64_t per_epoch = batches_per_epoch(n, batch);
  const std::int64_t first = number % per_epoch * batch;
  return {.epoch = number / per_epoch,
          .first = first,
          .count = std::min(batch, n - first),
          .last_of_epoch = first + batch >= n};
}

std::uint32_t num_micro_batches(const GlobalBatch& batch, std::int64_t micro) {
  return static_cast<std::uint32_t>((batch.count + micro - 1) / micro);
}

std::vector<MicroRange> share_of(const GlobalBatch& batch, std::int64_t micro,
                                 const kernel::Assignment& assignment, int rank) {
  std::vector<MicroRange> ranges;
  const std::uint32_t total = num_micro_batches(batch, micro);
  for (const std::uint32_t index : kernel::leaves_of(assignment, total, rank)) {
    const std::int64_t offset = index * micro;
    ranges.push_back({index, batch.first + offset, std::min(micro, batch.count - offset)});
  }
  return ranges;
}

void check_batch(std::int64_t batch, std::int64_t micro, int size, std::int64_t n) {
  const auto text = [](std::int64_t value) { return std::to_string(value); };
  if (batch <= 0 || micro <= 0) {
    refuse("batch",
           "batch.global = " + text(batch) + " and batch.micro = " + text(micro) +
               " must both be at least 1",
           "Give positive sizes.");
  }
  if (batch % micro != 0) {
    std::int64_t below = 1, above = batch;
    for (std::int64_t small = 1; small <= batch / small; ++small) {
      if (batch % small != 0) continue;
      for (const std::int64_t divisor : {small, batch / small})
        divisor < micro ? below = std::max(below, divisor) : above = std::min(above, divisor);
    }
    refuse("batch",
           "batch.micro does not divide batch.global: " + text(batch) + " = " +
               text(batch / micro) + " x " + text(micro) + " + " + text(batch % micro),
           "The nearest that do are " + text(below) + " and " + text(above) + ".");
  }
  const std::int64_t first = n > 0 ? std::min(n, batch) : batch;
  const std::int64_t count = (first + micro - 1) / micro;
  if (count < size) {
    refuse(
        "batch",
        "more ranks than micro-batches: " + text(first) + " samples / " + text(micro) + " = " +
            text(count) + " micro-batches for " + text(size) + " ranks",
        "Use at most " + text(count) + " ranks, a smaller batch.micro or a larger batch.global.");
  }
}

}  // namespace trireme::inline v0::input
