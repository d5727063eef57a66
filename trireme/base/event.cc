#include "trireme/base/event.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "trireme/base/error.h"

namespace trireme::inline v0 {

Event::Event() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!descriptor_) {
    throw ResourceError(std::string("eventfd failed: ") + std::strerror(errno),
                        {.advice = "Raise the limit on open files."});
  }
}

void Event::set() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto put = write(descriptor_.get(), &one, sizeof one);
}

bool Event::wait(Duration timeout) noexcept {
  const TimePoint end = Deadline::in(timeout).from(steady_now());
  constexpr long kMostMs = std::numeric_limits<int>::max();
  pollfd ready{descriptor_.get(), POLLIN, 0};
  for (;;) {
    const Duration rest = std::max(end - steady_now(), TimePoint::duration::zero());
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(rest).count();
    const int count = poll(&ready, 1, static_cast<int>(std::min<long>(milliseconds, kMostMs)));
    if (count > 0) return true;
    if (count == 0 && steady_now() >= end) return false;
    if (count < 0 && errno != EINTR) return false;
  }
}

}  // namespace trireme::inline v0
