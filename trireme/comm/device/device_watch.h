// DeviceWatch: polls a source by a timer, since a device cannot notify a waiter. The pauses grow
// while nothing moves. Progress context only.
#pragma once

#include <memory>

#include "trireme/base/waiter.h"

namespace trireme::inline v0::comm {

class DeviceWatch {
 public:
  explicit DeviceWatch(std::shared_ptr<Waiter> waiter) : waiter_(std::move(waiter)) {}
  /// Polls `source` until it has nothing pending, and adds it to the waiter.
  void begin(const std::shared_ptr<ProgressSource>& source);
  /// Removes `source` from the waiter as soon as it has nothing pending. The waiter's reference may
  /// be the last one.
  void end(const ProgressSource* source);

 private:
  void tick(const std::shared_ptr<ProgressSource>& source);

  const std::shared_ptr<Waiter> waiter_;
  bool ticking_ = false, added_ = false, ending_ = false;
  Duration pause_{};
};

/// Keeps memory until the process ends: a device may still access it. Any thread.
void never_free(std::shared_ptr<void> memory);

}  // namespace trireme::inline v0::comm
