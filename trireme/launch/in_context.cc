#include "trireme/launch/in_context.h"

#include <atomic>
#include <exception>

namespace trireme::inline v0::launch {

void in_context(Waiter& waiter, const std::function<void()>& task) {
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
