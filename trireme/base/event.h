// Event: any thread sets it, one thread waits for it with a timeout. For threads that must not
// drive the process's progress context (the heartbeat): uses eventfd and poll, no Waiter.
#pragma once

#include "trireme/base/clock.h"
#include "trireme/base/descriptor.h"

namespace trireme::inline v0 {

class Event {
 public:
  /// Throws ResourceError if no descriptor is left.
  Event();
  void set() noexcept;
  /// True if the event was set before or during the wait. It stays set.
  bool wait(Duration timeout) noexcept;

 private:
  const Descriptor descriptor_;
};

}  // namespace trireme::inline v0
