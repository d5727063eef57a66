// The Waiter of a real process: futex for threads, epoll for descriptors, one background thread.
//
// The thread that holds `driver_` is the progress context. A user thread that waits takes it and
// drives progress itself, so a blocking call switches no thread: it spins for `spin`, then sleeps
// in epoll. While no user thread waits, the background thread sleeps in epoll with the sources
// armed, and takes the context only when something has happened. When it finds that a user thread
// drives, it parks and checks again a little later, so leaving a wait costs a user thread no system
// call.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "trireme/base/descriptor.h"
#include "trireme/base/waiter.h"
#include "trireme/base/waiter/source_list.h"
#include "trireme/base/waiter/task_queue.h"

namespace trireme::inline v0 {

class RealWaiter final : public Waiter {
 public:
  /// The bound of every sleep: a lost wake-up would cost at most this.
  static constexpr Duration kLongestSleep = std::chrono::milliseconds(100);
  /// `spin`: how long a driver polls before it sleeps in epoll. Use zero if ranks share cores.
  explicit RealWaiter(Duration spin = std::chrono::microseconds(20),
                      Duration longest_sleep = kLongestSleep);
  ~RealWaiter() override;
  /// Makes a waiter that may be shared. The last reference may be released in the progress context,
  /// on the background thread, which cannot join itself; another thread then destroys the waiter.
  static std::shared_ptr<RealWaiter> make(Duration spin = std::chrono::microseconds(20),
                                          Duration longest_sleep = kLongestSleep);

  TimePoint now() const noexcept override { return steady_now(); }
  bool spins() const noexcept override { return spin_ > Duration::zero(); }
  bool wait_until(const std::function<bool()>& ready, TimePoint deadline) override;
  void wake() noexcept override;
  void run(std::function<void()> task) override;
  bool try_run(const std::function<void()>& task) override;
  void run_at(TimePoint time, std::function<void()> task) override;
  void add(std::shared_ptr<ProgressSource> source) override;
  void remove(const ProgressSource* source) override;

 private:
  bool try_take() noexcept;  // become the progress context
  void give_up();            // leave it; no queued task is left behind
  bool step();               // run queued tasks, due timers, polls; true if anything moved
  void linger();
  bool drive(const std::function<bool()>& ready, TimePoint deadline);
  void sleep_in_epoll(const std::function<bool()>& ready, TimePoint deadline, std::uint32_t seen);
  bool in_context() const noexcept {  // a thread sees its own last write
    return driver_id_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  Duration until(TimePoint deadline, TimePoint now) const noexcept;
  void kick() noexcept;  // wakes the background thread in rest_epoll_
  void background();
  void rest();
  void park();

  const Duration spin_, longest_sleep_;
  std::atomic<bool> driver_{false};
  std::atomic<std::thread::id> driver_id_{};
  std::atomic<std::uint32_t> events_{0};  // futex: threads that wait without driving
  std::atomic<int> sleepers_{0};
  std::atomic<int> users_{0};           // user threads inside wait_until
  std::atomic<int> in_epoll_{0};        // user threads that sleep in epoll (0 or 1)
  std::atomic<std::uint32_t> park_{0};  // futex: the background thread
  std::atomic<bool> resting_{false};    // the background thread sleeps in rest_epoll_
  std::atomic<bool> stop_{false};

  TaskQueue tasks_;
  SourceList sources_;

  const Descriptor epoll_;       // the sources and event_: where a user thread sleeps
  const Descriptor event_;       // wake() for a user thread in epoll_
  const Descriptor rest_epoll_;  // epoll_ and kick_: where the background thread sleeps
  const Descriptor kick_;
  std::thread background_;
};

}  // namespace trireme::inline v0
