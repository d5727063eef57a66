#include "trireme/base/waiter/real_waiter.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <system_error>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"

namespace trireme::inline v0 {
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

void ring(const Descriptor& eventfd) noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto put = write(eventfd.get(), &one, sizeof one);
}

void drain(const Descriptor& eventfd) noexcept {
  std::uint64_t value = 0;
  [[maybe_unused]] const auto got = read(eventfd.get(), &value, sizeof value);
}

constexpr Duration kYield = std::chrono::microseconds(50);
constexpr unsigned kLooksPerClock = 4;  // reading the clock costs as much as a look
// How long run() polls for a peer's answer: after each event, and in total.
constexpr Duration kLinger = std::chrono::microseconds(1);
constexpr Duration kLongestLinger = std::chrono::microseconds(20);
// A parked background thread looks again after kFirstPark, then at intervals up to kLongestPark.
constexpr Duration kFirstPark = std::chrono::microseconds(250);
constexpr Duration kLongestPark = std::chrono::milliseconds(4);

int milliseconds(Duration duration) noexcept {
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
}

[[noreturn]] void throw_errno(const char* call) {
  throw ResourceError(std::string(call) + " failed: " + std::strerror(errno),
                      {.operation = "waiter", .advice = "Raise the limit on open files."});
}

int checked(int descriptor, const char* call) {
  if (descriptor < 0) throw_errno(call);
  return descriptor;
}

void watch(const Descriptor& epoll, int descriptor) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = descriptor}};
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) throw_errno("epoll_ctl");
}

std::thread start_thread(std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw ResourceError(std::string("could not start a thread: ") + error.what(),
                        {.operation = "waiter",
                         .advice = "Raise the limits on processes (ulimit -u) and on memory."});
  }
}

}  // namespace

RealWaiter::RealWaiter(Duration spin, Duration longest_sleep)
    : spin_(spin),
      longest_sleep_(longest_sleep),
      epoll_(checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      event_(checked(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd")),
      rest_epoll_(checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      kick_(checked(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd")) {
  watch(epoll_, event_.get());
  watch(rest_epoll_, epoll_.get());
  watch(rest_epoll_, kick_.get());
  background_ = start_thread([this] { background(); });
}

std::shared_ptr<RealWaiter> RealWaiter::make(Duration spin, Duration longest_sleep) {
  return {new RealWaiter(spin, longest_sleep), [](RealWaiter* waiter) {
            if (waiter->background_.get_id() != std::this_thread::get_id()) {
              delete waiter;
            } else {
              std::thread([waiter] { delete waiter; }).detach();
            }
          }};
}

RealWaiter::~RealWaiter() {
  stop_ = true;
  park_.fetch_add(1);
  futex_wake(park_);
  ring(kick_);
  background_.join();
}

bool RealWaiter::try_take() noexcept {
  if (driver_.load(std::memory_order_relaxed) || driver_.exchange(true)) return false;
  driver_id_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  if (sources_.armed()) sources_.arm(false);
  return true;
}

// Leaves sources with outstanding operations armed, so that their peers wake the sleeping thread. A
// thread that failed to take the context has queued a task, or counts as a sleeper, before it tried
// again. Both are checked after the context is free, so none is missed.
void RealWaiter::give_up() {
  do {
    bool busy = false;
    if (sources_.any_pending()) {
      sources_.arm(true);
      for (int round = 0; (busy = step()) && round < 3;) ++round;
    }
    driver_id_.store(std::thread::id(), std::memory_order_relaxed);
    driver_.store(false);
    if (busy) kick();  // too much left for a thread that wants to leave
  } while (!tasks_.empty() && try_take() && (step(), true));
  if (sleepers_.load() > 0) {
    events_.fetch_add(1);
    futex_wake(events_);
  }
}

bool RealWaiter::wait_until(const std::function<bool()>& ready, TimePoint deadline) {
  if (ready()) return true;
  TRIREME_CHECK(!in_context());
  users_.fetch_add(1);
  bool result = false;
  TimePoint spin_until = now() + spin_;
  for (;;) {
    const std::uint32_t seen = events_.load();
    const TimePoint time = now();
    if ((result = ready()) || time >= deadline) break;
    if (try_take()) {
      result = drive(ready, deadline);
      users_.fetch_sub(1);
      give_up();
      return result;
    }
    if (time < spin_until) {
      __builtin_ia32_pause();
      continue;
    }
    sleepers_.fetch_add(1);
    // Count as a sleeper first, then try again: see give_up().
    if (!driver_.load()) {
      sleepers_.fetch_sub(1);
      continue;
    }
    if (events_.load() == seen) futex_wait(events_, seen, until(deadline, time));
    sleepers_.fetch_sub(1);
  }
  users_.fetch_sub(1);
  return result;
}

// Spins, then yields, then sleeps. If ranks share a core, the awaited rank is often next in line.
// Yielding costs one switch; sleeping costs a system call on either side too.
bool RealWaiter::drive(const std::function<bool()>& ready, TimePoint deadline) {
  TimePoint spin_until = now() + spin_;
  for (unsigned looks = 1;; ++looks) {
    const std::uint32_t seen = events_.load();
    const bool moved = step();
    if (ready()) return true;
    if (!moved && looks % kLooksPerClock != 0 && spin_ > Duration::zero()) continue;
    const TimePoint time = now();
    if (time >= deadline) return false;
    if (moved) {
      spin_until = time + spin_;
    } else if (time < spin_until) {
      __builtin_ia32_pause();
    } else if (time < spin_until + kYield) {
      sched_yield();
    } else {
      sleep_in_epoll(ready, deadline, seen);
      spin_until = now() + spin_;
    }
  }
}

void RealWaiter::sleep_in_epoll(const std::function<bool()>& ready, TimePoint deadline,
                                std::uint32_t seen) {
  in_epoll_.fetch_add(1);
  if (resting_.load()) kick();  // or the background thread would wake together with us
  sources_.arm(true);
  if (!step() && !ready() && events_.load() == seen) {
    const Duration rest = until(std::min(deadline, tasks_.next_timer()), now());
    epoll_event happened[8];
    const int count = epoll_wait(epoll_.get(), happened, 8, milliseconds(rest));
    for (int i = 0; i < count; ++i) {
      if (happened[i].data.fd == event_.get()) drain(event_);
    }
  }
  in_epoll_.fetch_sub(1);
  sources_.arm(false);
}

Duration RealWaiter::until(TimePoint deadline, TimePoint now) const noexcept {
  return deadline <= now ? Duration::zero() : std::min(deadline - now, longest_sleep_);
}

void RealWaiter::background() {
  while (!stop_) {
    rest();
    if (stop_) return;
    if (users_.load() > 0 || !try_take()) {
      park();
      continue;
    }
    // event_ may be set for a thread that did not fall asleep after all; rest() would then always
    // return at once. Nobody sleeps in epoll_ now, because that takes the context.
    drain(event_);
    while (step() && users_.load() == 0 && !stop_) {
    }
    give_up();
  }
}

// Sleeps until a descriptor, a timer or a kick. Returns at once if a user thread owns epoll_.
void RealWaiter::rest() {
  resting_.store(true);
  if (in_epoll_.load() == 0 && tasks_.empty() && !stop_) {
    epoll_event happened[2];
    epoll_wait(rest_epoll_.get(), happened, 2, milliseconds(until(tasks_.next_timer(), now())));
  }
  resting_.store(false);
  drain(kick_);
}

void RealWaiter::park() {
  Duration pause = kFirstPark;
  while (!stop_ && (users_.load() > 0 || driver_.load())) {
    const std::uint32_t word = park_.load();
    if (stop_) return;
    futex_wait(park_, word, pause);
    pause = std::min(2 * pause, kLongestPark);
  }
}

void RealWaiter::kick() noexcept { ring(kick_); }

void RealWaiter::wake() noexcept {
  events_.fetch_add(1);
  if (sleepers_.load() > 0) futex_wake(events_);
  if (in_epoll_.load() > 0 && !in_context()) ring(event_);
}

void RealWaiter::run(std::function<void()> task) {
  if (in_context()) return task();
  if (try_run(task)) return;
  tasks_.push(std::move(task));
  if (try_take()) {
    step();
    give_up();
  } else {
    wake();
  }
}

bool RealWaiter::try_run(const std::function<void()>& task) {
  if (!tasks_.empty() || !try_take()) return false;
  task();
  if (sources_.any_pending()) linger();
  sources_.compact();  // the sockets of a removed source close now
  give_up();
  return true;
}

void RealWaiter::run_at(TimePoint time, std::function<void()> task) {
  if (!tasks_.push_at(time, std::move(task))) return;
  wake();
  if (resting_.load()) kick();
}

// A peer's answer often comes within a microsecond. Polling for it here avoids arming, after which
// the peer would have to ring: a system call on either side.
void RealWaiter::linger() {
  step();
  if (spin_ < kLinger || !sources_.any_pending()) return;
  const TimePoint last = now() + kLongestLinger;
  TimePoint end = now() + kLinger;
  for (unsigned looks = 1; sources_.any_pending(); ++looks) {
    const bool moved = step();
    if (!moved && looks % kLooksPerClock != 0) continue;
    const TimePoint time = now();
    if (moved) end = std::min(time + kLinger, last);
    if (time >= end) return;
  }
}

bool RealWaiter::step() {
  bool moved = tasks_.run();
  moved |= sources_.poll();
  sources_.compact();
  return moved;
}

void RealWaiter::add(std::shared_ptr<ProgressSource> source) {
  if (const int descriptor = source->descriptor(); descriptor >= 0) watch(epoll_, descriptor);
  run([this, source = std::move(source)] { sources_.add(source); });
}

void RealWaiter::remove(const ProgressSource* source) {
  std::atomic<bool> gone{false};
  run([this, source, &gone] {
    if (sources_.remove(source) && source->descriptor() >= 0)
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, source->descriptor(), nullptr);
    gone = true;
    wake();
  });
  if (!gone) wait_until([&] { return gone.load(); }, TimePoint::max());
}

}  // namespace trireme::inline v0
