// in_context(): runs something in a waiter's progress context, and waits until it has ended.
#pragma once

#include <atomic>
#include <exception>
#include <functional>

#include "trireme/base/waiter.h"

namespace trireme::inline v0::launch {

/// Call it outside the context. Throws what `task` throws.
inline void in_context(Waiter& waiter, const std::function<void()>& task) {
  std::exception_ptr failed;
  std::atomic<bool> done{false};
  waiter.run([&] {
    try {
      task();
    } catch (...) {
      failed = std::current_exception();
    }
    done = true;
    waiter.wake();
  });
  waiter.wait_until([&] { return done.load(); }, TimePoint::max());
  if (failed) std::rethrow_exception(failed);
}

}  // namespace trireme::inline v0::launch
