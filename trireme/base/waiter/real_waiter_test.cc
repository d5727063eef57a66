#include "trireme/base/waiter/real_waiter.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/work.h"
#include "trireme/base/work_source.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

// A mailbox like a transport's: peers push and ring the bell if the owner sleeps; poll() takes.
class Mailbox final : public ProgressSource {
 public:
  Mailbox() : bell_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~Mailbox() override { close(bell_); }
  void push() {
    posted_.fetch_add(1);
    if (sleeping_.exchange(false)) {
      const std::uint64_t one = 1;
      [[maybe_unused]] const auto put = write(bell_, &one, sizeof one);
      ++rings_;
    }
  }
  bool poll() override {
    const int posted = posted_.load();
    const bool moved = posted != taken_.load();
    taken_.store(posted);
    if (moved && on_taken) on_taken();
    return moved;
  }
  bool pending() const noexcept override { return pending_.load(); }
  int descriptor() const noexcept override { return bell_; }
  void arm(bool sleeping) noexcept override {
    const bool was = sleeping_.exchange(sleeping);
    std::uint64_t value = 0;
    if (!sleeping && !was) [[maybe_unused]]
      const auto got = read(bell_, &value, sizeof value);
  }
  int taken() const { return taken_.load(); }
  int rings() const { return rings_.load(); }
  std::function<void()> on_taken;
  std::atomic<bool> pending_{true};

 private:
  const int bell_;
  std::atomic<int> posted_{0}, taken_{0}, rings_{0};
  std::atomic<bool> sleeping_{false};
};

TEST(RealWaiter, MayLoseItsLastReferenceOnItsOwnThread) {
  std::atomic<bool> ran{false};
  {
    auto waiter = RealWaiter::make(0us);
    RealWaiter& borrowed = *waiter;
    borrowed.run_at(borrowed.now() + 20ms, [held = std::move(waiter), &ran]() mutable {
      held.reset();
      ran = true;
    });
  }
  const auto other = RealWaiter::make();
  EXPECT_TRUE(other->wait_until([&] { return ran.load(); }, other->now() + 5s));
}

TEST(RealWaiter, RunsATaskInlineWhenFree) {
  RealWaiter waiter;
  std::thread::id where;
  waiter.run([&] { where = std::this_thread::get_id(); });
  EXPECT_EQ(where, std::this_thread::get_id());
}

TEST(RealWaiter, RunInsideTheContextIsInline) {
  RealWaiter waiter;
  std::string order;
  waiter.run([&] {
    order += 'a';
    waiter.run([&] { order += 'b'; });
    order += 'c';
  });
  EXPECT_EQ(order, "abc");
}

TEST(RealWaiter, WaitingInsideTheContextIsRefused) {
  RealWaiter waiter;
  bool refused = false;
  waiter.run([&] {
    try {
      waiter.wait_until([] { return false; }, waiter.now() + 1s);
    } catch (const CheckFailure&) {
      refused = true;
    }
  });
  EXPECT_TRUE(refused);
}

TEST(RealWaiter, DeadlineExpires) {
  for (const Duration spin : {Duration(0), Duration(20us), Duration(1s)}) {
    RealWaiter waiter(spin);
    const TimePoint start = waiter.now();
    EXPECT_FALSE(waiter.wait_until([] { return false; }, start + 30ms));
    EXPECT_GE(waiter.now() - start, 30ms);
    EXPECT_LT(waiter.now() - start, 2s);
  }
}

TEST(RealWaiter, TimersFireWhileWaitingAndWhileNobodyWaits) {
  RealWaiter waiter;
  std::atomic<int> fired{0};
  waiter.run_at(waiter.now() + 5ms, [&] { ++fired; });
  EXPECT_TRUE(waiter.wait_until([&] { return fired == 1; }, waiter.now() + 5s));
  waiter.run_at(waiter.now() + 5ms, [&] { ++fired; });
  const TimePoint limit = steady_now() + 5s;
  while (fired < 2 && steady_now() < limit) std::this_thread::yield();
  EXPECT_EQ(fired, 2);
}

TEST(RealWaiter, TimersRunInOrderOfTime) {
  RealWaiter waiter;
  std::string order;
  const TimePoint start = waiter.now();
  waiter.run([&] {
    waiter.run_at(start + 3ms, [&] { order += 'c'; });
    waiter.run_at(start + 1ms, [&] { order += 'a'; });
    waiter.run_at(start + 2ms, [&] { order += 'b'; });
  });
  waiter.wait_until([&] { return order.size() == 3; }, waiter.now() + 5s);
  EXPECT_EQ(order, "abc");
}

TEST(RealWaiter, BackgroundThreadDrivesWhileNobodyWaits) {
  RealWaiter waiter;
  auto box = std::make_shared<Mailbox>();
  waiter.add(box);
  for (int i = 1; i <= 100; ++i) {
    box->push();
    const TimePoint limit = steady_now() + 5s;
    while (box->taken() < i && steady_now() < limit) std::this_thread::yield();
    ASSERT_EQ(box->taken(), i);
  }
  waiter.remove(box.get());
  box->push();
  waiter.run([] {});
  EXPECT_EQ(box->taken(), 100) << "polled after remove()";
}

// Threads whose waits all end, unless a wake-up is lost: these waiters' sleeps end by an event alone. Then
// fails, and wakes them by hand. The time says only when nobody need wait any longer for a test that has failed.
class Threads {
 public:
  static constexpr Duration kLongestSleep = std::chrono::hours(24);
  void start(std::function<void()> body) {
    ++running_;
    threads_.emplace_back([this, body = std::move(body)] {
      body();
      const std::lock_guard lock(mutex_);
      --running_;
      ended_.notify_all();
    });
  }
  void expect_to_end(const std::function<void()>& wake) {
    std::unique_lock lock(mutex_);
    const auto all_ended = [this] { return running_ == 0; };
    if (!ended_.wait_for(lock, std::chrono::minutes(2), all_ended)) {
      ADD_FAILURE() << "a wake-up was lost";
      while (!ended_.wait_for(lock, 1ms, all_ended)) wake();
    }
    lock.unlock();
    for (auto& thread : threads_) thread.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::atomic<int> running_{0};
  std::vector<std::thread> threads_;
};

void exchange_wakeups(Duration spin, int rounds) {
  RealWaiter left(spin, Threads::kLongestSleep), right(spin, Threads::kLongestSleep);
  auto to_left = std::make_shared<Mailbox>(), to_right = std::make_shared<Mailbox>();
  left.add(to_left);
  right.add(to_right);
  Threads threads;
  threads.start([&] {
    for (int i = 1; i <= rounds; ++i) {
      right.wait_until([&] { return to_right->taken() >= i; }, TimePoint::max());
      to_left->push();
    }
  });
  threads.start([&] {
    for (int i = 1; i <= rounds; ++i) {
      to_right->push();
      left.wait_until([&] { return to_left->taken() >= i; }, TimePoint::max());
    }
  });
  threads.expect_to_end([&] {
    left.wake();
    right.wake();
  });
  left.remove(to_left.get());
  right.remove(to_right.get());
}

TEST(RealWaiter, NoWakeupIsLostBetweenSpinningThreads) { exchange_wakeups(20us, 2000); }
TEST(RealWaiter, NoWakeupIsLostBetweenSleepingThreads) { exchange_wakeups(0us, 2000); }

// Many threads wait on one waiter for Works that a producer settles through run().
TEST(RealWaiter, ManyThreadsWaitOnOneContext) {
  auto waiter = RealWaiter::make(5us, Threads::kLongestSleep);
  constexpr int kThreads = 4, kRounds = 300;
  Threads threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.start([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        WorkSource source(waiter);
        if ((i + t) % 3 == 0) {
          waiter->run_at(waiter->now() + 50us, [source] { source.complete(); });
        } else {
          std::thread([waiter, source] { waiter->run([source] { source.complete(); }); }).detach();
        }
        source.work().wait(Deadline::never());
      }
    });
  }
  threads.expect_to_end([&] { waiter->wake(); });
}

// The first thread drives, the second one sleeps behind it. When the first one has left, the second one drives.
TEST(RealWaiter, AThreadThatLeavesTheContextHandsItOn) {
  RealWaiter waiter(0us, Threads::kLongestSleep);
  auto box = std::make_shared<Mailbox>();
  waiter.add(box);
  for (int round = 0; round < 200 && !::testing::Test::HasFailure(); ++round) {
    std::atomic<bool> leave{false};
    std::atomic<int> first_looks{0}, second_looks{0};
    Threads first, second;
    first.start(
        [&] { waiter.wait_until([&] { return ++first_looks, leave.load(); }, TimePoint::max()); });
    while (first_looks < 3) std::this_thread::yield();
    const int taken = box->taken();
    second.start([&] {
      waiter.wait_until([&] { return ++second_looks, box->taken() > taken; }, TimePoint::max());
    });
    while (second_looks < 2) std::this_thread::yield();
    leave = true;
    waiter.wake();
    first.expect_to_end([&] { waiter.wake(); });
    box->push();
    second.expect_to_end([&] { waiter.wake(); });
  }
  waiter.remove(box.get());
}

TEST(RealWaiter, TasksFromManyThreadsRunOneAtATime) {
  RealWaiter waiter;
  long counter = 0;  // not atomic: the context is the lock
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) waiter.run([&] { ++counter, ++ran; });
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(waiter.wait_until([&] { return ran == 20000; }, waiter.now() + 20s));
  EXPECT_EQ(counter, 20000);
}

TEST(RealWaiter, ASourceMayRemoveItselfWhilePolled) {
  RealWaiter waiter;
  auto box = std::make_shared<Mailbox>();
  std::weak_ptr<Mailbox> alive = box;
  box->on_taken = [&waiter, raw = box.get()] { waiter.remove(raw); };
  waiter.add(box);
  box->push();
  box.reset();
  EXPECT_TRUE(waiter.wait_until([&] { return alive.expired(); }, waiter.now() + 5s));
}

// A waiter must not disturb a thread that computes between blocking calls.
TEST(RealWaiter, BlockingCallsSwitchNoThread) {
  RealWaiter waiter(1s);
  auto box = std::make_shared<Mailbox>();
  waiter.add(box);
  rusage before{}, after{};
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const int next = box->taken() + 1;
      waiter.run([&] { box->push(); });
      waiter.wait_until([&] { return box->taken() >= next; }, waiter.now() + 5s);
    }
  };
  rounds(10);
  getrusage(RUSAGE_SELF, &before);
  rounds(10000);
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_nvcsw - before.ru_nvcsw, 1000);
  EXPECT_LT(box->rings(), 100);
  waiter.remove(box.get());
}

// Its sockets close then, by which its peers notice that it has left.
// Another thread wakes a waiting one each time that it looks, also while it is about to sleep.
TEST(RealWaiter, AWakeUpThatNobodySleptForDoesNotKeepTheBackgroundBusy) {
  struct Counted final : ProgressSource {
    bool poll() override { return ++polls, false; }
    bool pending() const noexcept override { return false; }
    int descriptor() const noexcept override { return -1; }
    void arm(bool) noexcept override {}
    std::atomic<int> polls{0};
  };
  const auto waiter = RealWaiter::make(0us);
  const auto source = std::make_shared<Counted>();
  waiter->add(source);
  const TimePoint end = waiter->now() + 5ms;
  const auto ready = [&] {
    std::thread([&] { waiter->wake(); }).join();
    return waiter->now() >= end;
  };
  EXPECT_TRUE(waiter->wait_until(ready, TimePoint::max()));
  const int before = source->polls;
  std::this_thread::sleep_for(300ms);
  EXPECT_LT(source->polls - before, 100);
  waiter->remove(source.get());
}

TEST(RealWaiter, DestroysARemovedSourceBeforeItReturns) {
  RealWaiter waiter;
  auto box = std::make_shared<Mailbox>();
  const std::weak_ptr<Mailbox> seen = box;
  waiter.add(box);
  const ProgressSource* const source = std::exchange(box, nullptr).get();
  waiter.remove(source);
  EXPECT_TRUE(seen.expired());
}

}  // namespace
}  // namespace trireme
