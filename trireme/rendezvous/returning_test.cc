// Coordinators that end and are started again, and what they keep meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/event.h"
#include "trireme/base/file.h"
#include "trireme/base/work_thread.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/socket.h"
#include "trireme/rendezvous/coordinator/coordinator_test.h"
#include "trireme/rendezvous/coordinator/news_streams.h"

namespace trireme::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::uint16_t port_of(const Coordinator& coordinator) {
  return net::parse_endpoint(coordinator.endpoint()).value().port;
}

// A process that writes down the news that reach it.
class Process {
 public:
  Process(const Coordinator& coordinator, int number)
      : client(client_options(coordinator, number)) {
    client.watch([this](const News& one) {
      std::lock_guard lock(mutex_);
      news_.push_back(one);
    });
  }
  ~Process() { client.stop_watching(); }

  // Waits for the `count`-th news of the kind.
  News await(News::Kind kind, int count = 1) {
    Event pauses;  // never set
    for (const TimePoint end = steady_now() + seconds(30); steady_now() < end;
         pauses.wait(milliseconds(2))) {
      std::lock_guard lock(mutex_);
      int seen = 0;
      for (const News& one : news_)
        if (one.kind == kind && ++seen == count) return one;
    }
    ADD_FAILURE() << "the news did not come";
    return {};
  }
  bool has(News::Kind kind) {
    std::lock_guard lock(mutex_);
    return std::any_of(news_.begin(), news_.end(),
                       [&](const News& one) { return one.kind == kind; });
  }

  CoordinatorClient client;

 private:
  std::mutex mutex_;
  std::vector<News> news_;
};

TEST(ReturningCoordinator, KnowsItsProcessesAndTheirEpoch) {
  const auto store = std::make_shared<MemoryStore>();
  auto first = std::make_unique<Coordinator>(options_for(store));
  const std::uint16_t port = port_of(*first);
  Process zero(*first, 0), one(*first, 1);
  first->regroup({.number = 1, .members = {0, 1}, .cause = "begin"});
  zero.await(News::Kind::Epoch, 2);
  first.reset();
  zero.await(News::Kind::CoordinatorAway);
  EXPECT_TRUE(zero.client.returns());
  EXPECT_EQ(error_of([&] { zero.client.exchange("key", "", milliseconds(50)); }).exit_code, 161)
      << "may be repeated";

  Coordinator second(options_for(store, port));
  EXPECT_THAT(second.snapshot().joined, ElementsAre(0, 1));
  zero.await(News::Kind::CoordinatorBack);
  one.await(News::Kind::CoordinatorBack);
  EXPECT_EQ(zero.await(News::Kind::Epoch, 3).epoch, second.snapshot().epoch);
  one.await(News::Kind::Epoch, 3);
  EXPECT_EQ(second.snapshot().epoch.number, 1u);
  EXPECT_THAT(second.snapshot().unreached, ElementsAre());
  second.regroup({.number = 2, .members = {0}, .cause = "next"});
  EXPECT_EQ(one.await(News::Kind::Epoch, 4).epoch.number, 2u);
  EXPECT_FALSE(zero.has(News::Kind::CoordinatorLost));
}

// The answer to one of them may be lost with the coordinator.
TEST(ReturningCoordinator, RepeatsTheAnswersOfItsEpoch) {
  const auto store = std::make_shared<MemoryStore>();
  auto first = std::make_unique<Coordinator>(options_for(store));
  const std::uint16_t port = port_of(*first);
  Process zero(*first, 0), one(*first, 1);
  first->regroup({.number = 1, .members = {0, 1}, .cause = "begin"});
  EXPECT_FALSE(first->has_met());
  const CoordinatorClient::Group group{.members = {0, 1}, .epoch = 1};
  std::thread other([&] { one.client.exchange("key", "b", seconds(5), group); });
  EXPECT_THAT(zero.client.exchange("key", "a", seconds(5), group), ElementsAre("a", "b"));
  other.join();
  first.reset();
  Coordinator second(options_for(store, port));
  one.await(News::Kind::CoordinatorBack);
  EXPECT_THAT(one.client.exchange("key", "b", seconds(5), group), ElementsAre("a", "b"));
  EXPECT_TRUE(second.has_met());
  second.regroup({.number = 2, .members = {0, 1}, .cause = "next"});
  EXPECT_FALSE(second.has_met());
  EXPECT_EQ(error_of([&] {
              one.client.exchange("key", "c", milliseconds(50), {.members = {0, 1}, .epoch = 2});
            }).exit_code,
            161)
      << "of the epoch before, no more";
}

// Two workers, of which one trains on its own, and two servers that have copies of both shards.
TEST(ReturningCoordinator, KnowsTheServersAndTheWorkersOfItsJob) {
  const auto store = std::make_shared<MemoryStore>();
  CoordinatorOptions options = options_for(store);
  options.roles = {.workers = 2, .servers = 2};
  options.elastic.reset();
  options.lost_with_stream = false;
  auto first = std::make_unique<Coordinator>(options);
  Process zero(*first, 0), one(*first, 1), a(*first, 2), b(*first, 3);
  a.client.listen_at("a", seconds(5));
  b.client.listen_at("b", seconds(5));
  a.client.tell_copy(0, 1, 1, 1);
  b.client.tell_copy(1, 1, 0, 1);
  one.client.tell_alone();
  const ServerView before = zero.client.server_view(seconds(5));
  first.reset();

  Coordinator second(options);
  for (Process* process : {&zero, &one, &a, &b}) process->await(News::Kind::CoordinatorBack);
  EXPECT_EQ(zero.client.server_view(seconds(5)), before);
  EXPECT_EQ(b.client.listen_at("b", seconds(5)).second, 1u) << "the same process";
  EXPECT_TRUE(second.lose_worker(1));
  EXPECT_FALSE(second.lose_worker(0));
  const auto view = second.lose_server(1);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->primary(1), 0);
  EXPECT_FALSE(second.lose_server(0)) << "it has the only copies";
  Process again(second, 1);  // in place of the worker that is gone
}

// The first one ends when the process has come, before it answers.
TEST(ReturningCoordinator, LetsAProcessJoinThatHadNoAnswer) {
  const std::uint16_t port = free_port();
  Event came;
  auto first =
      std::make_unique<Door>(std::make_shared<net::Listener>(listen("127.0.0.1", port)), kSecret);
  first->open([&](const Descriptor&) { came.set(); });
  const ClientOptions options{.endpoint = first->endpoint(), .secret = kSecret, .host = "host"};
  ErrorReport joined{.exit_code = -1};
  std::thread process([&] { joined = error_of([&] { CoordinatorClient{options}; }); });
  EXPECT_TRUE(came.wait(seconds(30)));
  first.reset();
  Coordinator second(options_for(std::make_shared<MemoryStore>(), port));
  process.join();
  EXPECT_EQ(joined.exit_code, 0) << joined.sentence;
}

// The first one had written down that it has joined.
TEST(ReturningCoordinator, LetsAProcessJoinAgainThatHadNoAnswer) {
  const auto store = std::make_shared<MemoryStore>();
  auto first = std::make_unique<Coordinator>(options_for(store));
  join_by_hand(*stub_for(*first), 0);
  first.reset();
  Coordinator second(options_for(store));
  EXPECT_THAT(second.snapshot().joined, ElementsAre(0));
  EXPECT_EQ(error_of([&] { CoordinatorClient{client_options(second, 0)}; }).exit_code, 0);
}

TEST(ReturningCoordinator, MayBeginAnew) {
  const auto store = std::make_shared<MemoryStore>();
  CoordinatorOptions options = options_for(store);
  auto first = std::make_unique<Coordinator>(options);
  Process zero(*first, 0);
  first.reset();
  options.anew = true;
  auto second = std::make_unique<Coordinator>(options);
  EXPECT_THAT(second->snapshot().joined, ElementsAre());
  zero.await(News::Kind::CoordinatorLost);
  second.reset();
  options.anew = false;
  EXPECT_THAT(Coordinator(options).snapshot().joined, ElementsAre());
}

TEST(ReturningCoordinator, RefusesAProcessThatItHasGivenUp) {
  const auto store = std::make_shared<MemoryStore>();
  auto first = std::make_unique<Coordinator>(options_for(store));
  const std::uint16_t port = port_of(*first);
  Process zero(*first, 0), one(*first, 1);
  one.await(News::Kind::Epoch);
  first.reset();
  one.await(News::Kind::CoordinatorAway);
  auto options = options_for(store);  // where nobody finds it yet
  Coordinator second(std::move(options));
  EXPECT_THAT(second.snapshot().unreached, ElementsAre(0, 1));
  second.forget(1);
  second.regroup({.number = 1, .members = {0}, .cause = "process 1 is lost"});
  second.close();
  Coordinator third(options_for(store, port));
  EXPECT_THAT(one.await(News::Kind::CoordinatorLost).reason, HasSubstr("gone on without"));
  EXPECT_FALSE(one.client.returns());
  zero.await(News::Kind::CoordinatorBack);
}

TEST(ReturningCoordinator, GivesThePlaceOfOneThatHasNotComeBackToANewProcess) {
  const auto store = std::make_shared<MemoryStore>();
  auto first = std::make_unique<Coordinator>(options_for(store));
  { Process zero(*first, 0); }  // killed when the coordinator is
  const std::uint16_t port = port_of(*first);
  first.reset();

  auto options = options_for(store, port);
  std::thread forgets;
  std::string how;
  std::unique_ptr<Coordinator> second;
  options.on_gone = [&](int process, const std::string& said) {
    if (!how.empty()) return;
    how = said;
    forgets = std::thread([&, process] { second->forget(process); });
  };
  second = std::make_unique<Coordinator>(std::move(options));
  EXPECT_THAT(second->snapshot().unreached, ElementsAre(0));
  Process again(*second, 0);
  forgets.join();
  EXPECT_THAT(how, HasSubstr("was started again"));
  EXPECT_THAT(second->snapshot().unreached, ElementsAre());
}

TEST(ReturningCoordinator, ThatHasEndedWithItsJobIsNotWaitedFor) {
  const auto store = std::make_shared<MemoryStore>();
  Coordinator first(options_for(store));
  Process zero(first, 0);
  zero.await(News::Kind::Epoch);
  first.clear_store();
  first.close();
  zero.await(News::Kind::CoordinatorLost);
  EXPECT_FALSE(zero.has(News::Kind::CoordinatorAway));
  EXPECT_FALSE(store->open());
}

TEST(ReturningCoordinator, HearsAFarewellThatWasSaidWhileItWasAway) {
  const auto store = std::make_shared<MemoryStore>();
  auto first = std::make_unique<Coordinator>(options_for(store));
  const std::uint16_t port = port_of(*first);
  std::optional<Process> zero(std::in_place, *first, 0);
  zero->await(News::Kind::Epoch);
  first.reset();
  zero->await(News::Kind::CoordinatorAway);
  Event left;
  std::thread leaving([&] {
    zero->client.stop_watching();
    zero->client.leave();
  });
  auto options = options_for(store, port);
  options.on_left = [&](int process, int code) {
    EXPECT_EQ(process, 0);
    EXPECT_EQ(code, 0);
    left.set();
  };
  Coordinator second(std::move(options));
  EXPECT_TRUE(left.wait(seconds(30)));
  leaving.join();
  EXPECT_THAT(second.snapshot().joined, ElementsAre());
}

TEST(ReturningCoordinator, TellsNobodyWhatIsNotInItsStore) {
  const auto store = std::make_shared<MemoryStore>();
  Coordinator coordinator(options_for(store));
  Process zero(coordinator, 0);
  zero.await(News::Kind::Epoch);
  store->failing = 2;  // then it is back
  coordinator.regroup({.number = 1, .members = {0}, .cause = "begin"});
  EXPECT_THAT(zero.await(News::Kind::CoordinatorAway).reason, HasSubstr("cannot reach its store"));
  zero.await(News::Kind::CoordinatorBack);
  EXPECT_EQ(zero.await(News::Kind::Epoch, 2).epoch.number, 1u);
  EXPECT_EQ(store->failing, 0);
}

TEST(ReturningCoordinator, EndsIfItsStoreFailsForGood) {
  const auto store = std::make_shared<MemoryStore>();
  std::string why;
  auto options = options_for(store);
  options.store_patience = milliseconds(300);
  options.on_store_lost = [&](const std::exception_ptr& error) { why = describe(error).sentence; };
  auto coordinator = std::make_unique<Coordinator>(std::move(options));
  Process zero(*coordinator, 0);
  zero.await(News::Kind::Epoch);
  store->failing = 1000;
  coordinator->regroup({.number = 1, .members = {0}, .cause = "begin"});
  EXPECT_THAT(why, HasSubstr("the memory is away"));
  coordinator.reset();
  zero.await(News::Kind::CoordinatorAway);
  store->failing = 0;
  EXPECT_EQ(Coordinator(options_for(store)).snapshot().epoch.number, 0u)
      << "the change has not happened";
}

TEST(ReturningCoordinator, KnowsHowTheTrainingHasEnded) {
  const auto store = std::make_shared<MemoryStore>();
  const auto found = [&] { return Coordinator(options_for(store)).found().ended_with; };
  EXPECT_EQ(Coordinator(options_for(store)).snapshot().ended_with, std::nullopt);
  Coordinator(options_for(store)).finish(143, /*workers_only=*/true);
  EXPECT_EQ(found(), 143);
  Coordinator(options_for(store)).finish(0);
  EXPECT_EQ(found(), 0);
}

TEST(ReturningCoordinator, RefusesAnotherJobsState) {
  const auto store = std::make_shared<MemoryStore>();
  {
    Coordinator first(options_for(store));
    first.regroup({.number = 1, .members = {}, .cause = "begin"});
  }
  auto other_secret = options_for(store), other_job = options_for(store),
       other_size = options_for(store);
  other_secret.secret = std::string(32, 'x');
  other_job.job = "other";
  other_size.roles.workers = 4;
  EXPECT_THAT(error_of([&] { Coordinator{other_secret}; }).sentence, HasSubstr("another secret"));
  EXPECT_THAT(error_of([&] { Coordinator{other_job}; }).sentence, HasSubstr("is of job job"));
  EXPECT_THAT(error_of([&] { Coordinator{other_size}; }).sentence, HasSubstr("with 3 processes"));
  std::string text = *store->open();
  text.back() ^= 1;
  store->save(text);
  EXPECT_EQ(error_of([&] { Coordinator{options_for(store)}; }).exit_code, 2);
}

// Two that say to be the same: the job goes on with the first.
TEST(StandingJob, RefusesASecondProcessInOnePlace) {
  Coordinator coordinator(options_for(nullptr));
  Process zero(coordinator, 0);
  coordinator.regroup({.number = 1, .members = {0}, .cause = "begin"});
  EXPECT_THAT(error_of([&] { Process(coordinator, 0); }).sentence, HasSubstr("has joined already"));
  EXPECT_FALSE(coordinator.first_failure());
  EXPECT_THAT(zero.client.exchange("key", "a", seconds(5), {.members = {0}, .epoch = 1}),
              ElementsAre("a"));
}

// As the end of its process does.
void watch_and_break_off(const Coordinator& coordinator, std::uint32_t process) {
  const auto stub = stub_for(coordinator);
  grpc::ClientContext watching;
  wire::WatchRequest watch;
  watch.mutable_session()->set_rank(process);
  watch.mutable_session()->set_token(join_by_hand(*stub, process));
  const auto stream = stub->Watch(&watching, watch);
  wire::News news;
  ASSERT_TRUE(stream->Read(&news));
  watching.TryCancel();
  stream->Finish();
}

TEST(StandingJob, IsToldOfAProcessWhoseStreamBreaks) {
  Event gone;
  auto options = options_for(nullptr);
  options.on_gone = [&](int process, const std::string& how) {
    EXPECT_EQ(process, 1);
    EXPECT_THAT(how, HasSubstr("is gone"));
    gone.set();
  };
  Coordinator coordinator(std::move(options));
  watch_and_break_off(coordinator, 1);
  EXPECT_TRUE(gone.wait(seconds(30)));
  EXPECT_FALSE(coordinator.first_failure()) << "the job decides what that means";
}

// Its place gets another process, which counts its streams from 0 as the first one did.
TEST(StandingJob, IsToldOfTheNextProcessWhoseStreamBreaksAfterOneThatLeft) {
  Event gone;
  auto options = options_for(nullptr);
  options.on_gone = [&](int process, const std::string&) {
    EXPECT_EQ(process, 1);
    gone.set();
  };
  Coordinator coordinator(std::move(options));
  {
    Process one(coordinator, 1);
    one.client.stop_watching();
    one.client.leave(1);
  }
  coordinator.forget(1);
  watch_and_break_off(coordinator, 1);
  EXPECT_TRUE(gone.wait(seconds(30)));
}

// The stream of the process before breaks only when another process is in its place.
TEST(NewsStreams, AnEarlierProcessesStreamDoesNotEndTheNextOne) {
  WorkThread worker;
  std::mutex mutex;
  NewsStreams streams(2);
  int ends = 0;
  auto* const watcher = new Watcher(worker, mutex);  // gRPC would delete it
  streams.open(watcher, 1, 0, [&] { ends += streams.take_end(1, 0) ? 1 : 0; });
  streams.begin_anew(1);
  auto* const next = new Watcher(worker, mutex);
  streams.open(next, 1, 0, [&] { ++ends; });
  watcher->OnCancel();
  worker.drain();
  EXPECT_EQ(ends, 0);
  EXPECT_TRUE(streams.take_end(1, 0));
  delete watcher;
  delete next;
}

struct Folder {
  Folder() { path = mkdtemp(text.data()); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string text = ::testing::TempDir() + "trireme-store-XXXXXX", path;
};

TEST(FileStore, KeepsTheLastTextForOneOwner) {
  const Folder folder;
  {
    const auto store = make_store(folder.path);
    EXPECT_FALSE(store->open());
    store->save("first");
    store->save("second");
    EXPECT_EQ(error_of([&] { make_store(folder.path)->open(); }).exit_code, 2) << "it has an owner";
  }
  const auto store = make_store(folder.path);
  EXPECT_EQ(store->open(), "second");
  EXPECT_EQ(std::filesystem::status(folder.path + "/coordinator.state").permissions(),
            std::filesystem::perms(0600));
  store->clear();
  EXPECT_FALSE(std::filesystem::exists(folder.path + "/coordinator.state"));
}

// A coordinator that hung for long counts as gone, and does not know it when it goes on.
TEST(FileStore, WritesNothingAfterAnotherCoordinatorHasTakenItOver) {
  const Folder folder;
  const auto first = make_store(folder.path), second = make_store(folder.path);
  first->open();
  first->save("first");
  std::filesystem::remove(folder.path + "/.lock");  // as the other one does
  EXPECT_EQ(second->open(), "first");
  second->save("second");
  const ErrorReport report = error_of([&] { first->save("late"); });
  EXPECT_EQ(report.exit_code, static_cast<int>(ExitCode::Refused));
  EXPECT_THAT(report.sentence, HasSubstr("another coordinator has taken " + folder.path));
  EXPECT_THROW(first->clear(), RefusedError);
  EXPECT_EQ(try_read_file(folder.path + "/coordinator.state"), "second");
}

// In a folder where others may write. The ranks' sessions are in the state.
TEST(FileStore, WritesThroughNobodyElsesFile) {
  const Folder folder;
  const std::string other = folder.path + "/other", state = folder.path + "/coordinator.state";
  std::ofstream(other) << "not ours";
  std::filesystem::create_symlink(other, state + ".new");
  const auto store = make_store(folder.path);
  store->open();
  store->save("first");
  EXPECT_EQ(try_read_file(other), "not ours");
  EXPECT_FALSE(std::filesystem::is_symlink(state));
  std::ofstream(state + ".new");
  std::filesystem::permissions(state + ".new", std::filesystem::perms(0666));
  store->save("second");
  EXPECT_EQ(std::filesystem::status(state).permissions(), std::filesystem::perms(0600));
}

// A coordinator that took it for none would begin the job anew, and overwrite it.
TEST(FileStore, DoesNotTakeAStateThatItCannotReadForNone) {
  const Folder folder;
  std::filesystem::create_directory(folder.path +
                                    "/coordinator.state");  // also root cannot read it
  const ErrorReport report = error_of([&] { make_store(folder.path)->open(); });
  EXPECT_EQ(report.exit_code, static_cast<int>(ExitCode::Resource));
  EXPECT_THAT(report.sentence, HasSubstr("cannot read " + folder.path + "/coordinator.state"));
}

TEST(Stores, HaveAddresses) {
  for (const char* address : {"/no/such/folder", "etcd://host", "etcd://host:2379", "etcd://:1/key",
                              "etcd://host:2379/", "redis://host/key"})
    EXPECT_EQ(error_of([&] { make_store(address); }).exit_code, 2) << address;
}

}  // namespace
}  // namespace trireme::rendezvous
