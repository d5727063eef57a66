// The Waiter of a real process: futex for threads, epoll for descriptors, one background thread.
//
// A user thread that waits drives the progress context itself, so a blocking call switches no
// thread; the background thread drives while operations are pending and nobody waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/base/waiter.h"

namespace trireme {
inline namespace v0 {

class RealWaiter final : public Waiter {
 public:
  /// `spin`: how long a driver polls before it sleeps in epoll. Zero where ranks share cores.
  explicit RealWaiter(Duration spin = std::chrono::microseconds(20));
  ~RealWaiter() override;

  TimePoint now() const noexcept override { return steady_now(); }
  bool wait_until(const std::function<bool()>& ready, TimePoint deadline) override;
  void wake() noexcept override;
  void run(std::function<void()> task) override;
  void run_at(TimePoint time, std::function<void()> task) override;
  void add(std::shared_ptr<ProgressSource> source) override;
  void remove(const ProgressSource* source) override;

 private:
  class Drive;                     // RAII: this thread is the progress context
  bool step();                     // run queued tasks, due timers, polls; true if anything moved
  bool run_tasks();
  bool run_timers();
  bool drive(const std::function<bool()>& ready, TimePoint deadline, bool release_to_sleep);
  void sleep_in_epoll(const std::function<bool()>& ready, TimePoint deadline, bool release,
                      std::uint32_t seen);
  void arm(bool sleeping) noexcept;
  bool anything_pending();
  bool in_context() const noexcept { return driver_id_.load() == std::this_thread::get_id(); }
  TimePoint next_timer();
  void leave();                    // give the context up and tell whoever wants it
  void background();

  const Duration spin_;
  std::mutex driver_;
  std::atomic<std::thread::id> driver_id_{};
  std::atomic<std::uint32_t> events_{0};    // futex: threads that wait without driving
  std::atomic<int> sleepers_{0};
  std::atomic<int> users_{0};               // user threads inside wait_until
  std::atomic<std::uint32_t> park_{0};      // futex: the background thread
  std::atomic<bool> parked_{false};
  std::atomic<int> in_epoll_{0};
  std::atomic<bool> stop_{false};

  std::mutex tasks_mutex_;
  std::deque<std::function<void()>> tasks_;
  std::multimap<TimePoint, std::function<void()>> timers_;
  std::vector<std::shared_ptr<ProgressSource>> sources_;   // changed in the context only
  std::mutex sources_mutex_;                               // for pending() from other threads
  int epoll_ = -1;
  int event_ = -1;
  std::thread background_;
};

}  // namespace v0
}  // namespace trireme
