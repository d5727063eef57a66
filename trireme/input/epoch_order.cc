#include "trireme/input/epoch_order.h"

#include <iterator>
#include <numeric>
#include <utility>

#include "trireme/base/check.h"

namespace trireme::inline v0 {
namespace {
constexpr std::uint64_t kOrderStream = std::uint64_t{1} << 63;  // plus the epoch
}

std::vector<std::int64_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch,
                                      bool shuffle) {
  TRIREME_CHECK(n >= 0);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (!shuffle) return order;
  const std::uint64_t stream = kOrderStream + static_cast<std::uint64_t>(epoch);
  for (std::uint64_t i = order.size(); i > 1; --i) {  // Fisher-Yates (Knuth, Algorithm 3.4.2P)
    std::swap(order[i - 1], order[input::random_below(i, seed, stream, i)]);
  }
  return order;
}

namespace input {

std::int64_t SampleOrder::record(std::int64_t sample) const {
  TRIREME_CHECK(sample >= 0);
  TRIREME_CHECK((endless_ || sample < records_));
  if (!endless_) return sample;
  const std::int64_t epoch = sample / records_;
  const std::lock_guard lock(mutex_);
  auto found = orders_.find(epoch);
  if (found == orders_.end()) {
    if (orders_.size() > 2)
      orders_.erase(epoch < orders_.begin()->first ? std::prev(orders_.end()) : orders_.begin());
    found = orders_.emplace(epoch, epoch_order(records_, seed_, epoch, true)).first;
  }
  return found->second[static_cast<std::size_t>(sample % records_)];
}

}  // namespace input
}  // namespace trireme::inline v0
