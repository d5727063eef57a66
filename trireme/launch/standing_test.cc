// A standing coordinator in place of one that was killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "trireme/base/event.h"
#include "trireme/launch/coordinator/standing_coordinator.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/socket.h"
#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/coordinator/coordinator.h"

namespace trireme::inline v0::launch {
namespace {

using rendezvous::Coordinator;
using rendezvous::CoordinatorClient;
using rendezvous::News;
using std::chrono::milliseconds;
using std::chrono::seconds;

const std::string kSecret(32, 's');

// A port that is named is free again at once.
std::uint16_t free_port() {
  const std::string address = net::listen_tcp("127.0.0.1", 0).address;
  return net::parse_endpoint(address.substr(address.find(' ') + 1)).value().port;
}

// Joins; watches when it is told to.
class Process {
 public:
  Process(const std::string& endpoint, int number)
      : client_({.endpoint = endpoint, .secret = kSecret, .rank = number, .host = "host"}) {}
  ~Process() { client_.stop_watching(); }
  void watch() {
    client_.watch([this](const News& one) {
      std::lock_guard lock(mutex_);
      news_.push_back(one);
    });
  }
  // Waits, with heartbeats, for news of which `is` holds.
  template <class F>
  bool await(F is) {
    Event pauses;  // never set
    for (const TimePoint end = steady_now() + seconds(30); steady_now() < end;
         pauses.wait(milliseconds(20))) {
      beat();
      if (has(is)) return true;
    }
    return false;
  }
  template <class F>
  bool has(F is) {
    std::lock_guard lock(mutex_);
    return std::any_of(news_.begin(), news_.end(), is);
  }
  bool await_epoch(const std::vector<int>& members) {
    return await([&](const News& one) {
      return one.kind == News::Kind::Epoch && one.epoch.members == members;
    });
  }
  void beat() {
    try {
      client_.heartbeat({}, seconds(1));
    } catch (const std::exception&) {  // the coordinator is away
    }
  }
  void train_alone() { client_.tell_alone(); }
  // As a server.
  std::uint32_t listen() { return client_.listen_at("unix:here", seconds(30)).second; }
  rendezvous::ServerView view() { return client_.server_view(seconds(30)); }
  void leave(int exit_code) {
    client_.leave(exit_code);
    client_.stop_watching();
  }

 private:
  CoordinatorClient client_;
  std::mutex mutex_;
  std::vector<News> news_;
};

// Outlives coordinators.
class MemoryStore final : public rendezvous::StateStore {
 public:
  std::optional<std::string> open() override { return text_; }
  void save(const std::string& text) override {
    text_ = text;
    if (on_save) on_save();
  }
  void clear() override { text_.reset(); }
  // A coordinator asks for it when it begins, to say where its state comes from.
  const std::string& address() const noexcept override {
    if (on_begin) on_begin();
    return address_;
  }
  std::function<void()> on_save, on_begin;

 private:
  std::optional<std::string> text_;
  const std::string address_ = "memory";
};

// A job of two ranks whose coordinator ends, and another one that follows it.
struct ReturningTest : ::testing::Test {
  ReturningTest() {
    first = std::make_unique<Coordinator>(
        rendezvous::CoordinatorOptions{.roles = {.workers = 2},
                                       .port = free_port(),
                                       .secret = kSecret,
                                       .elastic = rendezvous::Epoch{},
                                       .lost_with_stream = true,
                                       .store = store,
                                       .returns_within = seconds(60)});
    endpoint = first->endpoint();
    for (const int number : {0, 1}) processes[number].emplace(endpoint, number).watch();
    first->regroup({.number = 1, .members = {0, 1}, .cause = "begin"});
  }
  ~ReturningTest() override {
    if (second.joinable()) second.join();
  }
  void follow() {
    first.reset();
    second = std::thread([this] {
      code = coordinate({.elastic = {.min = 1, .max = 2, .silence = seconds(60)},
                         .port = net::parse_endpoint(endpoint).value().port,
                         .secret = kSecret,
                         .store = store});
      ended.set();
    });
  }
  bool await_back(int process) {
    return processes[process]->await(
        [](const News& news) { return news.kind == News::Kind::CoordinatorBack; });
  }
  // Without it the next coordinator never ends, and so do the tests.
  void await_end() {
    if (!ended.wait(seconds(30))) std::terminate();
    EXPECT_EQ(code, 0);
  }

  const std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  std::unique_ptr<Coordinator> first;
  std::string endpoint;
  std::optional<Process> processes[2];
  std::thread second;
  std::atomic<int> code{-1};
  Event ended;
};

// The first one had written down that rank 1 is lost, and was killed before it had decided who goes on.
TEST_F(ReturningTest, LeavesARankOutThatWasBeingLeftOut) {
  first->forget(1);
  follow();
  EXPECT_TRUE(processes[0]->await_epoch({0}));
  processes[0]->leave(0);
  await_end();
}

// The first one had answered rank 0, and was killed before it had decided that the training has ended.
TEST_F(ReturningTest, EndsTheTrainingThatARankHadLeft) {
  processes[0]->leave(0);
  follow();
  EXPECT_TRUE(await_back(1));
  EXPECT_TRUE(
      processes[1]->await([](const News& news) { return news.kind == News::Kind::Finished; }));
  EXPECT_FALSE(processes[1]->has([](const News& news) {
    return news.kind == News::Kind::Epoch && news.epoch.members == std::vector<int>{1};
  })) << "rank 0 was not lost";
  processes[1]->leave(0);
  await_end();
}

TEST_F(ReturningTest, EndsWithTheRanksThatHadNotLeft) {
  processes[0]->leave(0);
  first->finish();
  follow();
  EXPECT_TRUE(await_back(1));
  processes[1]->leave(0);
  await_end();
}

TEST_F(ReturningTest, EndsAtOnceIfAllRanksHadLeft) {
  for (auto& process : processes) process->leave(0);
  first->finish();
  follow();
  await_end();
}

// Rank 1 leaves while the new coordinator is still being made.
TEST_F(ReturningTest, DecidesNothingBeforeItIsComplete) {
  Event left, decided;
  std::atomic<bool> begins{false}, early{false};
  store->on_begin = [&] {
    begins = true;
    EXPECT_TRUE(left.wait(seconds(30)));
    early = decided.wait(milliseconds(300));
    begins = false;
  };
  store->on_save = [&] {
    if (begins) decided.set();
  };
  follow();
  EXPECT_TRUE(await_back(1));
  processes[1]->leave(1);
  left.set();
  EXPECT_TRUE(processes[0]->await_epoch({0}));
  EXPECT_FALSE(early);
  processes[0]->leave(0);
  await_end();
}

// Process 1 has come back to the new coordinator before it was lost. The next process in its place is not
// one that has not come back, though the coordinator does not reach it yet.
TEST(StandingCoordinator, LetsANewProcessTakeThePlaceOfOneThatCameBack) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("standing-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  auto first = std::make_unique<Coordinator>(
      rendezvous::CoordinatorOptions{.roles = {.workers = 2},
                                     .port = free_port(),
                                     .secret = kSecret,
                                     .elastic = rendezvous::Epoch{},
                                     .lost_with_stream = true,
                                     .store = rendezvous::make_store(folder),
                                     .returns_within = seconds(60)});
  const std::string endpoint = first->endpoint();
  Process zero(endpoint, 0);
  std::optional<Process> one(std::in_place, endpoint, 1);
  zero.watch();
  one->watch();
  first->regroup({.number = 1, .members = {0, 1}, .cause = "begin"});
  first.reset();

  constexpr Duration kSilence = seconds(1);
  int code = -1;
  std::thread second([&] {
    code = coordinate({.elastic = {.min = 1, .max = 2, .silence = kSilence},
                       .port = net::parse_endpoint(endpoint).value().port,
                       .secret = kSecret,
                       .store = rendezvous::make_store(folder)});
  });
  const auto is_back = [](const News& news) { return news.kind == News::Kind::CoordinatorBack; };
  EXPECT_TRUE(zero.await(is_back));
  EXPECT_TRUE(one->await(is_back));
  one->leave(1);
  EXPECT_TRUE(zero.await_epoch({0}));
  one.emplace(endpoint, 1);
  Event pauses;  // never set
  for (int i = 0; i < 20; ++i) {
    zero.beat();
    pauses.wait(2 * kSilence / 20);
  }
  one->watch();
  EXPECT_TRUE(one->await_epoch({0, 1})) << "it was taken for one that has not come back";
  one->leave(0);
  zero.leave(0);
  second.join();
  EXPECT_EQ(code, 0);
  std::filesystem::remove_all(folder);
}

// The coordinator is cut off: it hears nobody. Nobody is lost then; who stays away when others are heard again is.
TEST(StandingCoordinator, DoesNotWriteOffEverybodyAtOnce) {
  constexpr Duration kSilence = milliseconds(1500);
  const std::uint16_t port = free_port();
  const std::string endpoint = "127.0.0.1:" + std::to_string(port);
  int code = -1;
  Event ready;
  std::thread coordinator([&] {
    code = coordinate({.elastic = {.min = 1, .max = 2, .silence = kSilence},
                       .port = port,
                       .secret = kSecret,
                       .on_ready = [&](const std::string&) { ready.set(); }});
  });
  ASSERT_TRUE(ready.wait(seconds(30)));
  Process zero(endpoint, 0);
  std::optional<Process> one(std::in_place, endpoint, 1);
  zero.watch();
  one->watch();
  EXPECT_TRUE(zero.await_epoch({0, 1}));
  Event pauses;  // never set
  pauses.wait(3 * kSilence);
  for (int i = 0; i < 30; ++i) {
    zero.beat();
    one->beat();
    pauses.wait(kSilence / 10);
  }
  const auto changed = [](const News& news) {  // not the epoch before the job's first
    return news.kind == News::Kind::Epoch && news.epoch.number > 0 && news.epoch.members.size() < 2;
  };
  EXPECT_FALSE(zero.has(changed));
  EXPECT_FALSE(one->has(changed));
  pauses.wait(2 * kSilence);
  EXPECT_TRUE(zero.await_epoch({0})) << "rank 1 stays away";
  // All are silent, and one is started again.
  pauses.wait(2 * kSilence);
  one.emplace(endpoint, 1);
  one->watch();
  EXPECT_TRUE(one->await([](const News& news) {
    return news.kind == News::Kind::Epoch && news.epoch.rank_of(1).has_value();
  })) << "rank 0 holds it up";
  one->leave(0);
  coordinator.join();
  EXPECT_EQ(code, 0);
}

// A server that is gone before the job has begun has held nothing; later the job ends with the only copy.
TEST(StandingCoordinator, WaitsForServersAndEndsWithTheOnlyCopyOfAShard) {
  const std::uint16_t port = free_port();
  const std::string endpoint = "127.0.0.1:" + std::to_string(port);
  int code = -1;
  Event ready;
  std::thread coordinator([&] {
    code = coordinate({.elastic = {.min = 1, .max = 1},
                       .servers = 1,
                       .port = port,
                       .secret = kSecret,
                       .on_ready = [&](const std::string&) { ready.set(); }});
  });
  ASSERT_TRUE(ready.wait(seconds(30)));
  constexpr int kServer = 1;  // after the workers
  std::optional<Process> server(std::in_place, endpoint, kServer);
  server->watch();
  EXPECT_EQ(server->listen(), 1u);
  server->leave(1);
  Process zero(endpoint, 0);
  zero.watch();
  EXPECT_TRUE(zero.await([](const News& one) {
    return one.kind == News::Kind::Servers && one.servers.primary(0) < 0;
  }));
  server.emplace(endpoint, kServer);
  server->watch();
  EXPECT_EQ(server->listen(), 2u);
  EXPECT_TRUE(zero.await_epoch({0}));
  EXPECT_EQ(zero.view().primary(0), 0);
  server->leave(1);
  EXPECT_TRUE(zero.await([](const News& one) {
    return one.kind == News::Kind::Failure &&
           one.failure.sentence.find("nobody else has its shard") != std::string::npos;
  }));
  zero.leave(160);
  coordinator.join();
  EXPECT_EQ(code, 160);
}

// Rank 0 has ended the training. The other workers are told, also one that comes only then; the server when
// all are gone.
TEST(StandingCoordinator, EndsServersAfterTheLastWorkerOnItsOwn) {
  const std::uint16_t port = free_port();
  const std::string endpoint = "127.0.0.1:" + std::to_string(port);
  int code = -1;
  Event ready;
  std::thread coordinator([&] {
    code = coordinate({.elastic = {.min = 1, .max = 3},
                       .alone = 2,
                       .servers = 1,
                       .port = port,
                       .secret = kSecret,
                       .on_ready = [&](const std::string&) { ready.set(); }});
  });
  ASSERT_TRUE(ready.wait(seconds(30)));
  const auto ends = [](const News& one) { return one.kind == News::Kind::Finished; };
  const auto left_rank = [](const News& one) { return one.kind == News::Kind::Left; };
  Process zero(endpoint, 0), one(endpoint, 1), server(endpoint, 2);
  for (Process* process : {&zero, &one, &server}) process->watch();
  server.listen();
  zero.train_alone();
  zero.leave(0);
  EXPECT_TRUE(one.await(ends));
  std::optional<Process> more(std::in_place, endpoint, 3);
  more->watch();
  EXPECT_TRUE(more->await(ends));
  one.leave(0);
  EXPECT_TRUE(more->await(left_rank)) << "the coordinator has heard it";
  EXPECT_FALSE(server.has(ends)) << "a worker is left";
  more->leave(1);
  EXPECT_TRUE(server.await(ends));
  server.leave(0);
  coordinator.join();
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace trireme::inline v0::launch
