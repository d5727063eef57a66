#include "trireme/net/sim/scheduler.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/mixed.h"

namespace trireme::inline v0::net {
namespace {

// The longest computation that an early delivery may stand for.
constexpr Duration kLongestComputing = std::chrono::milliseconds(100);

// Only one thread runs at a time. Passing the baton to another core would wake that core each time,
// which takes longer than most of what the ranks do in between. OpenMP counts the machine's cores,
// not this one, on which its threads would only wait for one another.
void stay_on(int core) noexcept {
  if (core < 0) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  if (sched_setaffinity(0, sizeof only, &only) != 0) return;
  using SetThreads = void (*)(int);
  static const auto set_threads =
      reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set_threads != nullptr) set_threads(1);
}

}  // namespace

std::uint64_t Choices::draw(std::uint64_t bound) {
  const std::uint64_t value = mixed(state_ += kMixedStep) % bound;
  trace_ = (trace_ ^ value) * 0x100000001b3ull + 1;
  return value;
}

// Marks that the baton's thread acts as `rank`'s progress context.
class Scheduler::Context {
 public:
  Context(Scheduler& scheduler, int rank) : scheduler_(scheduler), rank_(rank) {
    TRIREME_CHECK(!scheduler_.ranks_[rank]->in_context);
    scheduler_.ranks_[rank]->in_context = true;
    ++scheduler_.depth_;
  }
  ~Context() {
    scheduler_.ranks_[rank_]->in_context = false;
    --scheduler_.depth_;
  }

 private:
  Scheduler& scheduler_;
  const int rank_;
};

Scheduler::Scheduler(int size, Options options)
    : size_(size),
      now_(std::chrono::duration_cast<Duration>(std::chrono::hours(1)).count()),
      options_(options),
      random_(options.seed) {
  for (int rank = 0; rank < size; ++rank) ranks_.push_back(std::make_unique<Rank>());
}

void Scheduler::run(const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  std::exception_ptr first;
  // A rank that is charged for its computing may start threads, which would inherit the affinity.
  const int core = options_.charge_computing ? -1 : sched_getcpu();
  for (int rank = 0; rank < size_; ++rank) {
    ranks_[rank]->state = State::Runnable;
    threads.emplace_back([this, rank, core, &body, &first] {
      stay_on(core);
      take_baton(rank);
      ranks_[rank]->computed = thread_time();
      try {
        body(rank);
      } catch (...) {
        if (!first) first = std::current_exception();  // no race: one rank runs at a time
      }
      ranks_[rank]->state = State::Done;
      pass_baton(rank);
    });
  }
  ranks_[random_.draw(ranks_.size())]->go.release();
  all_done_.acquire();
  for (auto& thread : threads) thread.join();
  events_.clear();
  for (auto& rank : ranks_) {
    rank->tasks.clear();
    rank->sources.clear();  // one may hold a waiter, which holds this object
  }
  if (first) std::rethrow_exception(first);
}

void Scheduler::take_baton(int self) {
  ranks_[self]->go.acquire();
  holder_ = std::this_thread::get_id();
  current_ = self;
}

// Runs events, tasks and polls on this thread until the seed picks a thread; then passes the baton.
void Scheduler::pass_baton(int self) {
  ++changes_;
  for (;;) {
    take_foreign_tasks();
    const std::vector<Choice> open = open_choices();
    if (open.empty()) {
      if (idle()) continue;
      all_done_.release();
      return;
    }
    const Choice choice = open[random_.draw(open.size())];
    switch (choice.kind) {
      case Choice::Tasks:
        run_in_context(choice.rank, [] {});
        break;
      case Choice::Poll:
        poll(choice.rank);
        break;
      case Choice::Delivery:
        run_event();
        break;
      case Choice::Thread: {
        if (choice.rank == self) return;
        const bool done = ranks_[self]->state == State::Done;
        ranks_[choice.rank]->go.release();
        if (done) return;
        take_baton(self);
        return;
      }
    }
  }
}

std::vector<Scheduler::Choice> Scheduler::open_choices() const {
  std::vector<Choice> open;
  bool anybody = false;
  for (int rank = 0; rank < size_; ++rank) {
    const Rank& one = *ranks_[rank];
    if (one.state == State::Runnable) {
      open.push_back({Choice::Thread, rank});
      anybody = true;
    }
    if (!one.tasks.empty()) open.push_back({Choice::Tasks, rank});
    const bool waiting = std::any_of(one.sources.begin(), one.sources.end(),
                                     [](const auto& source) { return source->pending(); });
    if (waiting && one.polled_at != changes_) open.push_back({Choice::Poll, rank});
  }
  const bool early = anybody && options_.early_deliveries && !events_.empty() &&
                     events_.begin()->first <= now() + kLongestComputing;
  if (early && events_.begin()->second.delivery) {
    open.push_back({Choice::Delivery, events_.begin()->second.rank});
  }
  return open;
}

bool Scheduler::idle() {
  TimePoint next = events_.empty() ? TimePoint::max() : events_.begin()->first;
  bool blocked = false;
  for (const auto& rank : ranks_) {
    if (rank->state != State::Blocked) continue;
    blocked = true;
    next = std::min(next, rank->deadline);
  }
  if (!blocked) return false;  // all have returned; pending events do not matter
  if (next == TimePoint::max()) {
    declare_deadlock();
    return true;
  }
  if (!events_.empty() && events_.begin()->first == next) {
    run_event();
    return true;
  }
  now_ = std::max(now_.load(), next.time_since_epoch().count());
  for (auto& rank : ranks_) {
    if (rank->state == State::Blocked && rank->deadline <= now()) rank->state = State::Runnable;
  }
  return true;
}

void Scheduler::run_event() {
  auto node = events_.extract(events_.begin());
  now_ = std::max(now_.load(), node.key().time_since_epoch().count());
  run_in_context(node.mapped().rank, node.mapped().task);
}

void Scheduler::run_in_context(int rank, const Task& task) {
  Context context(*this, rank);
  task();
  drain(rank);
}

void Scheduler::drain(int rank) {
  Rank& one = *ranks_[rank];
  while (!one.tasks.empty()) {
    const Task task = std::move(one.tasks.front());
    one.tasks.pop_front();
    task();
  }
  ++changes_;
  if (one.state == State::Blocked) one.state = State::Runnable;
}

void Scheduler::poll(int rank) {
  Rank& one = *ranks_[rank];
  const std::uint64_t before = changes_;
  bool moved = false;
  Context context(*this, rank);
  for (std::size_t i = 0; i < one.sources.size(); ++i) {
    const auto source = one.sources[i];
    moved |= source->poll();
  }
  if (moved || !one.tasks.empty()) {
    drain(rank);
  } else if (changes_ == before) {
    one.polled_at = changes_;
  }
}

void Scheduler::declare_deadlock() {
  deadlock_ = "deadlock: nobody can run and nothing is under way";
  for (int rank = 0; rank < size_; ++rank) {
    const State state = ranks_[rank]->state;
    deadlock_ += "; rank " + std::to_string(rank) + " ";
    if (state == State::Done) {
      deadlock_ += "has returned";
    } else {
      const std::string what = describe_ ? describe_(rank) : std::string();
      deadlock_ += "waits for " + (what.empty() ? "something that is no message" : what);
    }
  }
  for (auto& rank : ranks_) {
    if (rank->state != State::Blocked) continue;
    rank->deadlocked = true;
    rank->state = State::Runnable;
  }
}

void Scheduler::take_foreign_tasks() {
  std::vector<std::pair<int, Task>> taken;
  {
    std::lock_guard lock(foreign_mutex_);
    taken.swap(foreign_);
  }
  for (auto& [rank, task] : taken) {
    if (task) ranks_[rank]->tasks.push_back(std::move(task));
    if (ranks_[rank]->state == State::Blocked) ranks_[rank]->state = State::Runnable;
  }
}

bool Scheduler::is_computing(int rank) const noexcept {
  return options_.charge_computing && holder_.load() == std::this_thread::get_id() &&
         current_ == rank && depth_ == 0 && !ranks_[rank]->inside;
}

TimePoint Scheduler::now_of(int rank) const noexcept {
  return is_computing(rank) ? now() + (thread_time() - ranks_[rank]->computed) : now();
}

// Entered by a rank's thread: first lets the time pass that the thread has computed.
class Scheduler::Inside {
 public:
  Inside(Scheduler& scheduler, int rank)
      : rank_(*scheduler.ranks_[rank]), entered_(scheduler.is_computing(rank)) {
    if (!entered_) return;
    const TimePoint until = scheduler.now_of(rank);
    rank_.inside = true;
    scheduler.block(
        rank, [] { return false; }, until);
  }
  ~Inside() {
    if (!entered_) return;
    rank_.inside = false;
    rank_.computed = thread_time();
  }
  Inside(const Inside&) = delete;

 private:
  Rank& rank_;
  const bool entered_;
};

bool Scheduler::block(int rank, const std::function<bool()>& ready, TimePoint deadline) {
  if (ready()) return true;
  Rank& self = *ranks_[rank];
  TRIREME_CHECK(!self.in_context);
  TRIREME_CHECK(holder_.load() == std::this_thread::get_id());
  while (now() < deadline) {
    self.state = State::Blocked;
    self.deadline = deadline;
    pass_baton(rank);
    if (ready()) return true;
    if (std::exchange(self.deadlocked, false)) throw DeadlockError(deadlock_, rank);
  }
  return false;
}

// False if this thread holds the baton, and may do the task itself.
bool Scheduler::queue_if_foreign(int rank, const Task& task) {
  if (holder_.load() == std::this_thread::get_id()) return false;
  const std::lock_guard lock(foreign_mutex_);
  foreign_.emplace_back(rank, task);
  return true;
}

void Scheduler::wake(int rank) noexcept {
  if (queue_if_foreign(rank, {})) return;
  ++changes_;
  if (ranks_[rank]->state == State::Blocked) ranks_[rank]->state = State::Runnable;
}

void Scheduler::at(int rank, TimePoint time, Task task, bool delivery) {
  events_.emplace(time, Event{rank, std::move(task), delivery});
}

class Scheduler::RankWaiter final : public Waiter {
 public:
  RankWaiter(std::shared_ptr<Scheduler> scheduler, int rank)
      : scheduler_(std::move(scheduler)), rank_(rank), own_(*scheduler_->ranks_[rank]) {}

  TimePoint now() const noexcept override { return scheduler_->now_of(rank_); }
  bool spins() const noexcept override { return false; }
  bool wait_until(const std::function<bool()>& ready, TimePoint deadline) override {
    const Inside inside(*scheduler_, rank_);
    return scheduler_->block(rank_, ready, deadline);
  }
  void wake() noexcept override { scheduler_->wake(rank_); }
  void run(Task task) override {
    if (scheduler_->queue_if_foreign(rank_, task)) return;
    own_.in_context ? task() : void(try_run(task));
  }
  bool try_run(const Task& task) override {
    Scheduler& all = *scheduler_;
    if (all.holder_.load() != std::this_thread::get_id() || own_.in_context) return false;
    const Inside inside(all, rank_);
    // Other ranks may overtake a rank's thread that is about to start something.
    if (rank_ == all.current_ && all.depth_ == 0 && all.random_.draw(2) == 0) all.pass_baton(rank_);
    all.take_foreign_tasks();
    if (!own_.tasks.empty()) all.run_in_context(rank_, [] {});  // they come first
    all.run_in_context(rank_, task);
    return true;
  }
  void run_at(TimePoint time, Task task) override {
    scheduler_->at(rank_, time, std::move(task), false);
  }
  void add(std::shared_ptr<ProgressSource> source) override {
    own_.sources.push_back(std::move(source));
    ++scheduler_->changes_;
  }
  void remove(const ProgressSource* source) override {
    const auto at = std::find_if(own_.sources.begin(), own_.sources.end(),
                                 [&](const auto& one) { return one.get() == source; });
    if (at == own_.sources.end()) return;
    const std::shared_ptr<ProgressSource> last = std::move(*at);  // ends after it has left the list
    own_.sources.erase(at);
  }

 private:
  const std::shared_ptr<Scheduler> scheduler_;
  const int rank_;
  Rank& own_;
};

std::shared_ptr<Waiter> Scheduler::waiter_of(std::shared_ptr<Scheduler> scheduler, int rank) {
  return std::make_shared<RankWaiter>(std::move(scheduler), rank);
}

}  // namespace trireme::inline v0::net
