// in_context(): runs something in a waiter's progress context, and waits until it has ended.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>

#include "trireme/base/waiter.h"

namespace trireme::inline v0 {

/// Call it outside the context. Throws what `task` throws.
inline void in_context(const std::shared_ptr<Waiter>& waiter, const std::function<void()>& task) {
  std::exception_ptr error;
  std::atomic<bool> done{false};
  // The task holds the waiter: the waiting thread may release its own before wake() returns.
  waiter->run([&, waiter = waiter] {
    try {
      task();
    } catch (...) {
      error = std::current_exception();
    }
    done = true;
    waiter->wake();
  });
  if (!done) waiter->wait_until([&] { return done.load(); }, TimePoint::max());
  if (error) std::rethrow_exception(error);
}

}  // namespace trireme::inline v0
