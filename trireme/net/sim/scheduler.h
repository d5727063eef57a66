// Scheduler: runs N rank threads on one virtual clock. A seed decides every choice.
//
// Exactly one rank thread runs at a time: the one that holds the baton. When it blocks
// (Waiter::wait_until) or enters its progress context (Waiter::run), the seed picks what happens
// next: another runnable thread, a rank's queued task, a poll of its sources, or the delivery of a
// message in transit. Virtual time stands still while a thread runs. When no thread can run, time
// jumps to the next event or deadline. If there is neither, that is a deadlock: every blocked rank
// throws DeadlockError, which says what each rank waits for.
//
// With charge_computing, a thread that enters its Waiter first waits on the virtual clock for as
// long as it has computed. So ranks compute in parallel on the virtual clock.
//
// A rank's tasks and polls run on the thread that holds the baton, at any point where the rank's
// own thread is suspended, as on a background thread. One thread per rank may block. Tasks queued
// by foreign threads run before what the rank's own thread starts next, or when the baton is passed.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/waiter.h"

namespace trireme::inline v0::net {

/// Thrown in every blocked rank when no thread can run and no event is scheduled.
class DeadlockError : public Error {
 public:
  explicit DeadlockError(std::string message, int rank)
      : Error(ExitCode::Timeout, std::move(message),
              {.rank = rank, .advice = "Look for a receive without its send, or the reverse."}) {}
};

/// Random numbers from a seed, and what was drawn.
class Choices {
 public:
  explicit Choices(std::uint64_t seed) : state_(seed) {}
  /// Uniform in [0, bound).
  std::uint64_t draw(std::uint64_t bound);
  /// A hash over every choice made so far: equal seeds and programs give equal traces.
  std::uint64_t trace() const noexcept { return trace_; }

 private:
  std::uint64_t state_;
  std::uint64_t trace_ = 0;
};

class Scheduler {
 public:
  using Task = std::function<void()>;

  struct Options {
    std::uint64_t seed = 1;
    /// Processor time that a rank's thread uses between two calls of its Waiter also passes on the
    /// virtual clock, in parallel for all ranks.
    bool charge_computing = false;
    /// A message may be delivered before its time while a thread could run, as if the thread
    /// computed until then. This shows more orders. False: times are exact.
    bool early_deliveries = true;
  };
  Scheduler(int size, Options options);

  /// Runs body(rank) on one thread per rank until all have returned. Then rethrows the first
  /// exception that a body threw.
  void run(const std::function<void(int rank)>& body);

  TimePoint now() const noexcept { return TimePoint(Duration(now_.load())); }
  /// The seed's choices, for the thread that holds the baton.
  Choices& random() noexcept { return random_; }

  static std::shared_ptr<Waiter> waiter_of(std::shared_ptr<Scheduler> scheduler, int rank);
  /// Waiter::wake().
  void wake(int rank) noexcept;
  /// Runs `task` in `rank`'s progress context at `time`. If `delivery`, it may also run early while
  /// threads are runnable (see early_deliveries); a timer may not.
  void at(int rank, TimePoint time, Task task, bool delivery);
  /// A deadlock's message contains what this returns for each blocked rank.
  void set_describe(std::function<std::string(int rank)> describe) {
    describe_ = std::move(describe);
  }

 private:
  enum class State { Runnable, Blocked, Done };
  // std::binary_semaphore yields the processor to other threads before it sleeps; here they all sleep.
  class Signal {
   public:
    Signal() { sem_init(&semaphore_, 0, 0); }
    ~Signal() { sem_destroy(&semaphore_); }
    Signal(const Signal&) = delete;
    void release() { sem_post(&semaphore_); }
    void acquire() {
      while (sem_wait(&semaphore_) != 0) {  // a signal handler has run
      }
    }

   private:
    sem_t semaphore_;
  };
  struct Rank {
    Signal go;
    State state = State::Runnable;
    bool in_context = false;
    bool deadlocked = false;
    TimePoint deadline = TimePoint::max();
    std::deque<Task> tasks;
    std::vector<std::shared_ptr<ProgressSource>> sources;
    std::uint64_t polled_at = ~0ull;  // value of changes_ when a poll last found nothing
    bool inside = false;              // its thread is in the Waiter
    Duration computed{};              // its thread's processor time when it last left the Waiter
  };
  struct Event {
    int rank;
    Task task;
    bool delivery;
  };
  struct Choice {
    enum Kind { Thread, Tasks, Poll, Delivery } kind;
    int rank;
  };

  class Context;
  class Inside;
  class RankWaiter;
  void take_baton(int self);
  void drain(int rank);       // runs queued tasks inside the context
  void pass_baton(int self);  // returns when `self` holds it again (or is done)
  std::vector<Choice> open_choices() const;
  bool is_computing(int rank) const noexcept;
  bool block(int rank, const std::function<bool()>& ready, TimePoint deadline);
  bool idle();  // advances time or declares a deadlock; false: all done
  void run_event();
  void run_in_context(int rank, const Task& task);
  void poll(int rank);
  void declare_deadlock();
  bool queue_if_foreign(int rank, const Task& task);
  void take_foreign_tasks();
  TimePoint now_of(int rank) const noexcept;

  const int size_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::multimap<TimePoint, Event> events_;
  std::atomic<Duration::rep> now_;
  int current_ = -1;  // the rank whose thread holds the baton
  int depth_ = 0;     // progress contexts entered on the baton's thread
  const Options options_;
  Choices random_;
  std::uint64_t changes_ = 0;              // counts possible changes of polled memory
  std::atomic<std::thread::id> holder_{};  // the thread that holds the baton
  Signal all_done_;
  std::string deadlock_;
  std::function<std::string(int)> describe_;
  std::mutex foreign_mutex_;
  std::vector<std::pair<int, Task>> foreign_;  // an empty task only wakes the rank
};

}  // namespace trireme::inline v0::net
