#include "trireme/base/work.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/base/work_source.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

std::exception_ptr failure(const char* text = "broken") {
  return std::make_exception_ptr(std::runtime_error(text));
}

struct Owner final : WorkOwner {
  explicit Owner(Duration timeout) : limit(timeout) {}
  Deadline timeout() const noexcept override { return Deadline::in(limit); }
  TimePoint on_deadline(TimePoint now, Duration waited) override {
    asked.push_back(waited);
    if (asked.size() < 3) return now + limit;
    pending->fail(std::make_exception_ptr(TimeoutError("gave up")));
    return TimePoint::max();
  }
  void on_unseen_failure(std::exception_ptr error) noexcept override { unseen = error; }
  Duration limit;
  std::vector<Duration> asked;
  std::unique_ptr<WorkSource> pending;
  std::exception_ptr unseen;
};

TEST(Work, DefaultIsComplete) {
  Work work;
  EXPECT_TRUE(work.done());
  work.wait();
  bool ran = false;
  work.then([&] { ran = true; }).wait();
  EXPECT_TRUE(ran);
}

TEST(Work, FailedAtBirthThrowsItsError) {
  const Work work = Work::failed(failure("at birth"));
  EXPECT_TRUE(work.done());
  EXPECT_THROW(work.wait(), std::runtime_error);
}

TEST(Work, CompletesOnceAndIgnoresTheRest) {
  auto waiter = RealWaiter::make();
  WorkSource source(waiter);
  const Work work = source.work();
  EXPECT_FALSE(work.done());
  waiter->run([&] {
    source.complete();
    source.fail(failure());
  });
  work.wait();
}

TEST(Work, WaitsForAnotherThread) {
  auto waiter = RealWaiter::make();
  for (int i = 0; i < 500; ++i) {
    WorkSource source(waiter);
    std::thread producer([&] { waiter->run([&] { source.complete(); }); });
    source.work().wait(Deadline::in(10s));
    producer.join();
  }
}

TEST(Work, ThenRunsAfterSuccessOnlyAndCarriesErrors) {
  auto waiter = RealWaiter::make();
  WorkSource good(waiter), bad(waiter);
  int ran = 0;
  const Work after_good = good.work().then([&] { ++ran; });
  const Work after_bad = bad.work().then([&] { ran += 100; });
  const Work throwing = good.work().then([] { throw std::out_of_range("next"); });
  waiter->run([&] {
    good.complete();
    bad.fail(failure());
  });
  after_good.wait();
  EXPECT_EQ(ran, 1);
  EXPECT_THROW(after_bad.wait(), std::runtime_error);
  EXPECT_THROW(throwing.wait(), std::out_of_range);
}

TEST(Work, OnSettledCallsAtOnceWhenSettled) {
  auto waiter = RealWaiter::make();
  WorkSource source(waiter);
  waiter->run([&] { source.fail(failure()); });
  std::exception_ptr seen;
  source.work().on_settled([&](const std::exception_ptr& error) { seen = error; });
  EXPECT_TRUE(seen);
}

struct FakeSide final : DeviceSide {
  bool enqueued() const noexcept override { return given; }
  void wait_on(Stream stream) override { streams.push_back(stream.handle); }
  std::atomic<bool> given{false};
  std::vector<void*> streams;
};

TEST(Work, WaitOnLetsTheStreamWaitOnceTheDeviceHasIt) {
  auto waiter = RealWaiter::make();
  WorkSource a(waiter), b(waiter);
  const auto side_a = std::make_shared<FakeSide>(), side_b = std::make_shared<FakeSide>();
  a.set_device(side_a);
  b.set_device(side_b);
  int stream = 0;
  side_a->given = true;
  a.work().wait_on({&stream});  // returns although nothing is done
  EXPECT_FALSE(a.work().done());
  EXPECT_EQ(side_a->streams, std::vector<void*>{&stream});

  const std::vector<Work> works{a.work(), b.work()};
  const Work all = Work::all(works);
  std::thread later([&] {
    waiter->run([&] { side_b->given = true; });
    waiter->wake();
  });
  all.wait_on({&stream});
  later.join();
  EXPECT_EQ(side_a->streams.size(), 2u);
  EXPECT_EQ(side_b->streams.size(), 1u);

  waiter->run([&] { b.fail(failure("b")); });  // a failed Work throws at once
  EXPECT_THROW(b.work().wait_on({&stream}), std::runtime_error);
  EXPECT_EQ(side_b->streams.size(), 1u);
  waiter->run([&] { a.complete(); });
}

TEST(Work, AllWaitsForEveryOneAndFailsWithTheFirst) {
  auto waiter = RealWaiter::make();
  WorkSource a(waiter), b(waiter), c(waiter);
  const std::vector<Work> works{a.work(), Work(), b.work(), c.work()};
  const Work all = Work::all(works);
  waiter->run([&] { b.fail(failure("first")); });
  waiter->run([&] { a.fail(failure("second")); });
  EXPECT_FALSE(all.done());
  waiter->run([&] { c.complete(); });
  try {
    all.wait();
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
}

TEST(Work, AllSeesAFailureAtBirth) {
  auto waiter = RealWaiter::make();
  WorkSource source(waiter);
  const std::vector<Work> works{Work::failed(failure()), source.work()};
  const Work all = Work::all(works);
  EXPECT_FALSE(all.done());
  waiter->run([&] { source.complete(); });
  EXPECT_THROW(all.wait(Deadline::in(5s)), std::runtime_error);
}

struct CompletesWhatIsAwaited final : WorkOwner {
  Deadline timeout() const noexcept override { return Deadline::never(); }
  TimePoint on_deadline(TimePoint, Duration) override { return TimePoint::max(); }
  void on_unseen_failure(std::exception_ptr) noexcept override {}
  void on_wait_begin(std::string_view) noexcept override { pending->complete(); }
  std::unique_ptr<WorkSource> pending;
};

TEST(Work, AllBlocksUntilTheOthersOfAFailureAtBirthHaveSettled) {
  auto waiter = RealWaiter::make();
  auto owner = std::make_shared<CompletesWhatIsAwaited>();
  const WorkSource source(waiter, owner);
  owner->pending = std::make_unique<WorkSource>(source);
  const std::vector<Work> works{Work::failed(failure()), source.work()};
  EXPECT_THROW(Work::all(works).wait(Deadline::in(5s)), std::runtime_error);
  EXPECT_TRUE(source.work().done());
  owner->pending.reset();
}

TEST(Work, DeadlineWithoutOwnerThrowsAndNamesTheOperation) {
  auto waiter = RealWaiter::make();
  WorkSource source(waiter, nullptr, "all_reduce bucket 2");
  try {
    source.work().wait(Deadline::in(10ms));
    FAIL();
  } catch (const TimeoutError& error) {
    EXPECT_NE(std::string(error.what()).find("all_reduce bucket 2"), std::string::npos);
  }
}

TEST(Work, OwnerMayProlongAndThenAbort) {
  auto waiter = RealWaiter::make();
  auto owner = std::make_shared<Owner>(10ms);
  owner->pending = std::make_unique<WorkSource>(waiter, nullptr);
  WorkSource source(waiter, owner);
  source.work().on_settled([](const std::exception_ptr&) {});
  *owner->pending = source;
  EXPECT_THROW(source.work().wait(), TimeoutError);
  ASSERT_EQ(owner->asked.size(), 3u);
  EXPECT_GE(owner->asked[2], 30ms);
  owner->pending.reset();
}

TEST(Work, UnseenFailureGoesToTheOwnerASeenOneDoesNot) {
  auto waiter = RealWaiter::make();
  auto owner = std::make_shared<Owner>(1s);
  {
    WorkSource source(waiter, owner);
    source.fail(failure());
  }
  EXPECT_TRUE(owner->unseen);
  owner->unseen = nullptr;
  {
    WorkSource source(waiter, owner);
    source.fail(failure());
    EXPECT_THROW(source.work().wait(), std::runtime_error);
  }
  EXPECT_FALSE(owner->unseen);
}

}  // namespace
}  // namespace trireme
