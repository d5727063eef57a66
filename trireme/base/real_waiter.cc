#include "trireme/base/real_waiter.h"

#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"

namespace trireme {
inline namespace v0 {
namespace {

void futex_wake(std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
          nullptr, 0);
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Duration timeout) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  timespec limit{seconds.count(), (timeout - seconds).count()};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, &limit,
          nullptr, 0);
}

// A bound on every sleep: a lost wake-up costs at most this much.
constexpr Duration kLongestSleep = std::chrono::milliseconds(100);

Duration until(TimePoint deadline, TimePoint now) noexcept {
  if (deadline <= now) return Duration::zero();
  if (deadline - now > kLongestSleep) return kLongestSleep;
  return deadline - now;
}

[[noreturn]] void throw_errno(const char* call) {
  throw ResourceError(std::string(call) + " failed: " + std::strerror(errno),
                      {.operation = "waiter", .advice = "Raise the limit on open files."});
}

}  // namespace

class RealWaiter::Drive {
 public:
  explicit Drive(RealWaiter& waiter) : waiter_(waiter) { waiter_.driver_id_ = std::this_thread::get_id(); }
  ~Drive() { waiter_.driver_id_ = std::thread::id(); }

 private:
  RealWaiter& waiter_;
};

RealWaiter::RealWaiter(Duration spin) : spin_(spin) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) throw_errno("epoll_create1");
  event_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (event_ < 0) throw_errno("eventfd");
  epoll_event event{.events = EPOLLIN, .data = {.fd = event_}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, event_, &event);
  background_ = std::thread([this] { background(); });
}

RealWaiter::~RealWaiter() {
  stop_ = true;
  park_.fetch_add(1);
  futex_wake(park_);
  wake();
  background_.join();
  close(event_);
  close(epoll_);
}

bool RealWaiter::wait_until(const std::function<bool()>& ready, TimePoint deadline) {
  if (ready()) return true;
  TRIREME_CHECK(!in_context());
  users_.fetch_add(1);
  bool result = false;
  for (;;) {
    const std::uint32_t seen = events_.load();
    if ((result = ready()) || now() >= deadline) break;
    if (driver_.try_lock()) {
      {
        Drive context(*this);
        result = drive(ready, deadline, false);
      }
      users_.fetch_sub(1);
      leave();
      return result;
    }
    sleepers_.fetch_add(1);
    if (events_.load() == seen) futex_wait(events_, seen, until(deadline, now()));
    sleepers_.fetch_sub(1);
  }
  users_.fetch_sub(1);
  return result;
}

bool RealWaiter::drive(const std::function<bool()>& ready, TimePoint deadline, bool release) {
  TimePoint spin_until = now() + spin_;
  for (;;) {
    const std::uint32_t seen = events_.load();
    const bool moved = step();
    if (ready()) return true;
    const TimePoint time = now();
    if (time >= deadline) return false;
    if (moved) {
      spin_until = time + spin_;
    } else if (time < spin_until) {
      __builtin_ia32_pause();
    } else {
      sleep_in_epoll(ready, deadline, release, seen);
      spin_until = now() + spin_;
    }
  }
}

// Sleeps with every source armed. `release`: the background thread lets go of the context while it
// sleeps, so that a user thread may take it over without waking anybody.
void RealWaiter::sleep_in_epoll(const std::function<bool()>& ready, TimePoint deadline,
                                bool release, std::uint32_t seen) {
  in_epoll_.fetch_add(1);
  arm(true);
  if (!step() && !ready() && events_.load() == seen) {
    const Duration rest = until(std::min(deadline, next_timer()), now());
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(rest).count();
    if (release) {
      driver_id_ = std::thread::id();
      driver_.unlock();
    }
    epoll_event happened[8];
    const int count = epoll_wait(epoll_, happened, 8, static_cast<int>(milliseconds));
    for (int i = 0; i < count; ++i) {
      if (happened[i].data.fd != event_) continue;
      std::uint64_t value = 0;
      [[maybe_unused]] const auto got = read(event_, &value, sizeof value);
    }
    if (release) {
      // A user thread may have taken over; it needs no company: park until it leaves.
      while (!driver_.try_lock()) {
        const std::uint32_t word = park_.load();
        if (stop_) {
          driver_.lock();
          break;
        }
        parked_ = true;
        if (users_.load() > 0) futex_wait(park_, word, kLongestSleep);
        parked_ = false;
      }
      driver_id_ = std::this_thread::get_id();
    }
  }
  in_epoll_.fetch_sub(1);
  arm(false);
}

void RealWaiter::leave() {
  if (anything_pending()) arm(true);
  driver_.unlock();
  if (sleepers_.load() > 0) {
    events_.fetch_add(1);
    futex_wake(events_);
  }
  if (users_.load() == 0 && parked_.load() && anything_pending()) {
    park_.fetch_add(1);
    futex_wake(park_);
  } else if (users_.load() == 0 && in_epoll_.load() > 0 && anything_pending()) {
    wake();
  }
}

void RealWaiter::background() {
  const auto yield = [this] { return stop_.load() || users_.load() > 0 || !anything_pending(); };
  while (!stop_) {
    const std::uint32_t word = park_.load();
    parked_ = true;
    if (yield() && !stop_) futex_wait(park_, word, kLongestSleep);
    parked_ = false;
    if (yield() || !driver_.try_lock()) continue;
    {
      Drive context(*this);
      drive(yield, TimePoint::max(), true);
    }
    driver_.unlock();
    events_.fetch_add(1);
    if (sleepers_.load() > 0) futex_wake(events_);
  }
}

void RealWaiter::wake() noexcept {
  events_.fetch_add(1);
  if (sleepers_.load() > 0) futex_wake(events_);
  if (in_epoll_.load() > 0 && !in_context()) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto put = write(event_, &one, sizeof one);
  }
}

void RealWaiter::run(std::function<void()> task) {
  if (in_context()) return task();
  {
    std::lock_guard lock(tasks_mutex_);
    tasks_.push_back(std::move(task));
  }
  if (driver_.try_lock()) {
    {
      Drive context(*this);
      step();
    }
    leave();
  } else {
    wake();
    if (users_.load() == 0 && parked_.load()) {
      park_.fetch_add(1);
      futex_wake(park_);
    }
  }
}

void RealWaiter::run_at(TimePoint time, std::function<void()> task) {
  {
    std::lock_guard lock(tasks_mutex_);
    timers_.emplace(time, std::move(task));
  }
  wake();
  park_.fetch_add(1);
  futex_wake(park_);
}

bool RealWaiter::step() {
  bool moved = run_tasks() | run_timers();
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const auto source = sources_[i];
    moved |= source->poll();
  }
  return moved;
}

bool RealWaiter::run_tasks() {
  bool moved = false;
  for (;;) {
    std::function<void()> task;
    {
      std::lock_guard lock(tasks_mutex_);
      if (tasks_.empty()) return moved;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
    moved = true;
  }
}

bool RealWaiter::run_timers() {
  bool moved = false;
  for (;;) {
    std::function<void()> task;
    {
      std::lock_guard lock(tasks_mutex_);
      if (timers_.empty() || timers_.begin()->first > now()) return moved;
      task = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
    }
    task();
    moved = true;
  }
}

TimePoint RealWaiter::next_timer() {
  std::lock_guard lock(tasks_mutex_);
  return timers_.empty() ? TimePoint::max() : timers_.begin()->first;
}

bool RealWaiter::anything_pending() {
  {
    std::lock_guard lock(tasks_mutex_);
    if (!tasks_.empty() || !timers_.empty()) return true;
  }
  std::lock_guard lock(sources_mutex_);
  return std::any_of(sources_.begin(), sources_.end(),
                     [](const auto& source) { return source->pending(); });
}

void RealWaiter::arm(bool sleeping) noexcept {
  for (const auto& source : sources_) source->arm(sleeping);
}

void RealWaiter::add(std::shared_ptr<ProgressSource> source) {
  run([this, source = std::move(source)] {
    if (const int descriptor = source->descriptor(); descriptor >= 0) {
      epoll_event event{.events = EPOLLIN, .data = {.fd = descriptor}};
      epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event);
    }
    std::lock_guard lock(sources_mutex_);
    sources_.push_back(source);
  });
}

void RealWaiter::remove(const ProgressSource* source) {
  std::atomic<bool> gone{false};
  run([this, source, &gone] {
    std::shared_ptr<ProgressSource> last;   // destroyed after the lock
    {
      std::lock_guard lock(sources_mutex_);
      const auto at = std::find_if(sources_.begin(), sources_.end(),
                                   [&](const auto& one) { return one.get() == source; });
      if (at != sources_.end()) {
        last = std::move(*at);
        sources_.erase(at);
      }
    }
    if (last && last->descriptor() >= 0) {
      epoll_ctl(epoll_, EPOLL_CTL_DEL, last->descriptor(), nullptr);
    }
    gone = true;
    wake();
  });
  if (!gone) wait_until([&] { return gone.load(); }, TimePoint::max());
}

}  // namespace v0
}  // namespace trireme
