// Event: one thread waits for it with a timeout, any thread sets it. For threads that must not
// drive their process's progress context (the heartbeat): eventfd and poll, no Waiter.
#pragma once

#include "trireme/base/clock.h"

namespace trireme {
inline namespace v0 {

class Event {
 public:
  /// Throws ResourceError where no descriptor is left.
  Event();
  ~Event();
  Event(const Event&) = delete;
  void set() noexcept;
  /// True when it was set, before or during the wait; it stays set.
  bool wait(Duration timeout) noexcept;

 private:
  int descriptor_ = -1;
};

}  // namespace v0
}  // namespace trireme
