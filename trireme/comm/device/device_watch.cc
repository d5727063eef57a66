#include "trireme/comm/device/device_watch.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace trireme::inline v0::comm {

constexpr Duration kFirstPause = std::chrono::microseconds(20);
constexpr Duration kLongestPause = std::chrono::milliseconds(1);

void DeviceWatch::begin(const std::shared_ptr<ProgressSource>& source) {
  if (!std::exchange(added_, true)) waiter_->add(source);
  pause_ = kFirstPause;
  if (!std::exchange(ticking_, true)) tick(source);
}

void DeviceWatch::tick(const std::shared_ptr<ProgressSource>& source) {
  ticking_ = source->pending();
  if (!ticking_) {
    if (ending_) end(source.get());
    return;
  }
  waiter_->run_at(waiter_->now() + pause_, [this, source] {
    pause_ = source->poll() ? kFirstPause : std::min(2 * pause_, kLongestPause);
    tick(source);
  });
}

void DeviceWatch::end(const ProgressSource* source) {
  ending_ = true;
  if (!source->pending() && std::exchange(added_, false)) waiter_->remove(source);
}

void never_free(std::shared_ptr<void> memory) {
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(memory));
}

}  // namespace trireme::inline v0::comm
