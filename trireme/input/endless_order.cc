#include "trireme/input/endless_order.h"

#include "trireme/base/check.h"
#include "trireme/input/epoch_order.h"

namespace trireme::inline v0::input {

std::int64_t EndlessOrder::record(std::int64_t sample) const {
  TRIREME_CHECK(sample >= 0);
  const std::int64_t epoch = sample / records_;
  const std::lock_guard lock(mutex_);
  auto found = orders_.find(epoch);
  if (found == orders_.end()) {
    if (orders_.size() > 2) orders_.erase(orders_.begin());
    found = orders_.emplace(epoch, epoch_order(records_, seed_, epoch, true)).first;
  }
  return found->second[static_cast<std::size_t>(sample % records_)];
}

}  // namespace trireme::inline v0::input
