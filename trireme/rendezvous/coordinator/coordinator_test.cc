#include "trireme/rendezvous/coordinator/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/event.h"
#include "trireme/rendezvous/coordinator/coordinator_test.h"

namespace trireme::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Coordinator, ListensOnLoopbackAndRefusesAnythingElseWithoutASecret) {
  Coordinator coordinator({.roles = {.workers = 1}, .secret = kSecret});
  EXPECT_EQ(coordinator.endpoint().rfind("127.0.0.1:", 0), 0u);
  EXPECT_EQ(
      error_of([] { Coordinator({.roles = {.workers = 1}, .address = "0.0.0.0"}); }).exit_code, 2);
  EXPECT_EQ(error_of([] { Coordinator({.roles = {.workers = 1}}); }).exit_code, 2)
      << "never without a secret";
}

TEST(Coordinator, ExchangesOneValuePerRank) {
  Coordinator coordinator({.roles = {.workers = 3}, .secret = kSecret});
  std::vector<std::vector<std::string>> results(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      CoordinatorClient client(client_options(coordinator, rank));
      for (const char* key : {"first", "second"}) {
        results[rank] = client.exchange(key, key + std::to_string(rank), seconds(5));
      }
      client.leave();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& values : results) {
    EXPECT_THAT(values, ElementsAre("second0", "second1", "second2"));
  }
}

TEST(Coordinator, AnExchangeThatRunsOutMayBeRepeated) {
  Coordinator coordinator({.roles = {.workers = 2}, .secret = kSecret});
  CoordinatorClient zero(client_options(coordinator, 0));
  EXPECT_EQ(error_of([&] { zero.exchange("key", "a", milliseconds(50)); }).exit_code, 161);
  std::thread late([&] {
    CoordinatorClient one(client_options(coordinator, 1));
    EXPECT_THAT(one.exchange("key", "b", seconds(5)), ElementsAre("a", "b"));
  });
  EXPECT_THAT(zero.exchange("key", "a", seconds(5)), ElementsAre("a", "b"));
  late.join();
}

// Its deadline passed when the last value came, so nobody read the answer.
TEST(Coordinator, ACompleteExchangeMayBeRepeated) {
  Coordinator coordinator({.roles = {.workers = 2}, .secret = kSecret});
  CoordinatorClient zero(client_options(coordinator, 0)), one(client_options(coordinator, 1));
  error_of([&] { zero.exchange("key", "a", milliseconds(50)); });
  EXPECT_THAT(one.exchange("key", "b", seconds(5)), ElementsAre("a", "b"));
  EXPECT_THAT(zero.exchange("key", "a", seconds(5)), ElementsAre("a", "b"));
}

// A table of measured times may have hundreds of kilobytes.
TEST(Coordinator, AValueThatIsTooLongIsRefusedWithItsKeyAndIsNoLoss) {
  Coordinator coordinator({.roles = {.workers = 1}, .secret = kSecret});
  CoordinatorClient zero(client_options(coordinator, 0));
  const std::string table(300'000, 't');
  EXPECT_THAT(zero.exchange("tuning", table, seconds(5)), ElementsAre(table));
  const ErrorReport report =
      error_of([&] { zero.exchange("more", std::string(600'000, 't'), seconds(5)); });
  EXPECT_EQ(report.exit_code, 2);
  EXPECT_THAT(report.sentence, HasSubstr("\"more\" has 600,000 bytes, and 524,288 are the most"));
  EXPECT_EQ(
      error_of([&] { zero.exchange("most", std::string(2 << 20, 't'), seconds(5)); }).exit_code, 2)
      << "gRPC refuses it";
}

TEST(Coordinator, RefusesAWrongSecretOnBothEnds) {
  Coordinator coordinator({.roles = {.workers = 1}, .secret = kSecret});
  ClientOptions options = client_options(coordinator, 0);
  options.secret = std::string(32, 'x');
  const ErrorReport report = error_of([&] { CoordinatorClient{options}; });
  EXPECT_EQ(report.exit_code, 11);
  EXPECT_THAT(report.sentence, HasSubstr("does not know the job's secret"));
  EXPECT_THAT(coordinator.snapshot().joined, ElementsAre());
}

// If a process ends without a message, its stream ends. Here the stream is cancelled instead.
TEST(Coordinator, AStreamThatBreaksOffIsTheEndOfItsRankWhereNobodyElseSeesIt) {
  for (const bool seen : {false, true}) {
    Coordinator coordinator(
        {.roles = {.workers = 2}, .secret = kSecret, .lost_with_stream = !seen});
    Event arrived;  // outlives the watching thread
    News got;
    CoordinatorClient zero(client_options(coordinator, 0));
    const auto stub = stub_for(coordinator);
    wire::WatchRequest request;
    request.mutable_session()->set_rank(1);
    request.mutable_session()->set_token(join_by_hand(*stub, 1));
    grpc::ClientContext context;
    const auto stream = stub->Watch(&context, request);
    wire::News first;
    ASSERT_TRUE(stream->Read(&first));
    zero.watch([&](const News& news) {
      if (got.failure.rank < 0) got = news;
      arrived.set();
    });
    context.TryCancel();
    stream->Finish();
    EXPECT_EQ(arrived.wait(seen ? milliseconds(50) : milliseconds(5000)), !seen);
    zero.stop_watching();
    EXPECT_EQ(coordinator.awaits_workers(seconds(5)), true) << "rank 0";
    if (seen) continue;
    EXPECT_EQ(got.failure.rank, 1);
    EXPECT_EQ(got.failure.exit_code, 160);
    EXPECT_THAT(got.failure.sentence, HasSubstr("rank 1 on host by hand is gone"));
    EXPECT_EQ(error_of([&] { zero.exchange("key", "a", seconds(5)); }).exit_code, 160);
  }
}

TEST(Coordinator, AnEvaluatorWhoseStreamEndsIsNobodyElsesLoss) {
  Coordinator coordinator(
      {.roles = {.workers = 2, .evaluator = true}, .secret = kSecret, .lost_with_stream = true});
  std::atomic<int> failures{0};
  Event gone;  // outlives the watching thread
  CoordinatorClient zero(client_options(coordinator, 0)), one(client_options(coordinator, 1));
  zero.watch([&](const News& news) {
    failures += news.kind == News::Kind::Failure;
    if (news.kind == News::Kind::Left && news.left_rank == 2) gone.set();
  });
  const auto stub = stub_for(coordinator);
  wire::WatchRequest request;
  request.mutable_session()->set_rank(2);
  request.mutable_session()->set_token(join_by_hand(*stub, 2));
  {
    grpc::ClientContext context;
    const auto stream = stub->Watch(&context, request);
    wire::News first;
    ASSERT_TRUE(stream->Read(&first));
    EXPECT_TRUE(coordinator.awaits_others(seconds(5)));
    context.TryCancel();
    stream->Finish();
  }
  ASSERT_TRUE(gone.wait(seconds(5)));
  EXPECT_FALSE(coordinator.awaits_others(seconds(5)));
  EXPECT_TRUE(coordinator.awaits_workers(seconds(5)));
  zero.stop_watching();
  EXPECT_EQ(failures, 0);
  EXPECT_FALSE(coordinator.first_failure().has_value());
}

TEST(Coordinator, ARankThatStopsWatchingOrLeavesIsNotLost) {
  Coordinator coordinator({.roles = {.workers = 3}, .secret = kSecret, .lost_with_stream = true});
  CoordinatorClient zero(client_options(coordinator, 0)), one(client_options(coordinator, 1));
  for (CoordinatorClient* client : {&zero, &one}) {
    client->watch([](const News&) {});
    client->heartbeat({}, seconds(5));
    client->stop_watching();
  }
  // StopWatching may arrive before the Watch that it ends.
  for (int i = 0; i < 200; ++i) {
    zero.watch([](const News&) {});
    zero.stop_watching();
  }
  one.leave();
  zero.heartbeat({}, seconds(5));
  EXPECT_FALSE(coordinator.first_failure());
}

TEST(Coordinator, RefusesCallsWithoutASession) {
  Coordinator coordinator({.roles = {.workers = 2}, .secret = kSecret});
  const auto stub = stub_for(coordinator);
  join_by_hand(*stub, 0);
  grpc::ClientContext contexts[2];
  wire::FailureReport report;
  report.mutable_session()->set_token(random_bytes(32));
  report.mutable_failure()->set_sentence("a lie");
  report.mutable_failure()->set_exit_code(1);
  wire::Empty empty;
  EXPECT_FALSE(stub->ReportFailure(&contexts[0], report, &empty).ok());
  EXPECT_FALSE(coordinator.first_failure()) << "the job was disturbed";
  wire::ExchangeRequest large;
  *large.mutable_session() = report.session();
  large.set_value(std::string(2 << 20, 'x'));
  wire::ExchangeReply reply;
  EXPECT_FALSE(stub->Exchange(&contexts[1], large, &reply).ok());
}

// gRPC would buffer a stranger's data: up to the largest message for each of any number of calls.
TEST(Coordinator, NobodySpeaksGrpcWithItWhoDoesNotKnowTheSecret) {
  Coordinator coordinator({.roles = {.workers = 1}, .secret = kSecret});
  const auto stub = wire::Coordinator::NewStub(
      grpc::CreateChannel(coordinator.endpoint(), grpc::InsecureChannelCredentials()));
  wire::JoinRequest join;
  join.set_version(std::string(kWireVersion));
  join.set_job(std::string(1 << 19, 'x'));
  wire::JoinReply reply;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(5));
  EXPECT_EQ(stub->Join(&context, join, &reply).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(coordinator.first_failure()) << "the job was disturbed";
  EXPECT_TRUE(is_coordinator(coordinator.endpoint(), kSecret));
  EXPECT_FALSE(is_coordinator(coordinator.endpoint(), std::string(32, 'x')));
}

TEST(Coordinator, AJoinWhoseAnswerWasLostMayBeRepeated) {
  Coordinator coordinator({.roles = {.workers = 1}, .secret = kSecret});
  const auto stub = stub_for(coordinator);
  const auto join = [&](const std::string& token) {
    wire::JoinRequest request;
    request.set_version(std::string(kWireVersion));
    request.set_job("job");
    request.set_token(token);
    wire::JoinReply reply;
    grpc::ClientContext context;
    return stub->Join(&context, request, &reply).ok() ? reply.token() : "refused";
  };
  const std::string token(kSecretBytes, 't');
  EXPECT_EQ(join(token), token);
  EXPECT_EQ(join(token), token);
  EXPECT_FALSE(coordinator.first_failure());
  EXPECT_EQ(join(std::string(kSecretBytes, 'o')), "refused") << "another process";
}

TEST(Coordinator, RefusesAnotherVersionJobOrRank) {
  Coordinator coordinator({.roles = {.workers = 1}, .secret = kSecret, .job = "7"});
  ClientOptions right = client_options(coordinator, 0);
  right.job = "7";
  ClientOptions version = right, job = right, rank = right;
  version.version = "trireme 9";
  job.job = "8";
  rank.rank = std::numeric_limits<int>::max();
  for (const auto& wrong : {version, job, rank}) {
    EXPECT_EQ(error_of([&] { CoordinatorClient{wrong}; }).exit_code, 10);
  }
  EXPECT_THAT(error_of([&] { CoordinatorClient{version}; }).sentence,
              HasSubstr("\"trireme 9\", its coordinator \"" + std::string(kWireVersion) + "\""));
  CoordinatorClient joined(right);
  EXPECT_THAT(coordinator.snapshot().joined, ElementsAre(0));
}

TEST(Coordinator, RefusesAnotherIdentityWithBothValuesAndRecordsIt) {
  Coordinator coordinator({.roles = {.workers = 2}, .secret = kSecret});
  ClientOptions zero = client_options(coordinator, 0), one = client_options(coordinator, 1);
  zero.identity = "seed 7";
  one.identity = "seed 8";
  CoordinatorClient first(zero);
  EXPECT_EQ(error_of([&] { CoordinatorClient{one}; }).exit_code, 10);
  const auto failure = coordinator.first_failure();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->exit_code, 10);
  EXPECT_THAT(failure->sentence, HasSubstr("\"seed 8\" against \"seed 7\""));
}

TEST(Coordinator, NobodyThereIsCoordinatorLostOrTimeout) {
  std::string endpoint;
  {
    Coordinator coordinator({.roles = {.workers = 1}, .secret = kSecret});
    endpoint = coordinator.endpoint();
  }
  ClientOptions options{.endpoint = endpoint, .secret = kSecret, .timeout = milliseconds(300)};
  const int code = error_of([&] { CoordinatorClient{options}; }).exit_code;
  EXPECT_TRUE(code == 161 || code == 162) << code;
}

TEST(Coordinator, TellsAFailureAtOnceAndFailsOpenExchanges) {
  std::atomic<int> told{0};
  Coordinator coordinator(
      {.roles = {.workers = 2}, .secret = kSecret, .on_failure = [&](const Failure&) { ++told; }});
  Event arrived;  // outlives the watching thread
  News got;
  CoordinatorClient zero(client_options(coordinator, 0));
  CoordinatorClient one(client_options(coordinator, 1));
  zero.watch([&](const News& news) {
    got = news;
    arrived.set();
  });
  std::thread waiting([&] {
    const ErrorReport report = error_of([&] { zero.exchange("key", "a", seconds(20)); });
    EXPECT_EQ(report.exit_code, 160);
    EXPECT_THAT(report.sentence, HasSubstr("rank 1 threw"));
  });
  one.report({.step = 7, .operation = "user", .sentence = "rank 1 threw", .exit_code = 20});
  EXPECT_TRUE(arrived.wait(seconds(5)));
  zero.stop_watching();
  waiting.join();
  EXPECT_EQ(got.kind, News::Kind::Failure);
  EXPECT_EQ(got.failure.rank, 1);
  EXPECT_EQ(got.failure.step, 7);
  EXPECT_EQ(got.failure.exit_code, 20);
  EXPECT_EQ(told, 1);
}

TEST(Coordinator, TellsAFailureWhoseTextIsNoUtf8) {
  Coordinator coordinator({.roles = {.workers = 2}, .secret = kSecret});
  Event arrived;  // outlives the watching thread
  News got;
  CoordinatorClient zero(client_options(coordinator, 0));
  CoordinatorClient one(client_options(coordinator, 1));
  zero.watch([&](const News& news) {
    got = news;
    arrived.set();
  });
  one.report({.sentence = "rank 1 threw \xff\xfe", .exit_code = 20});
  EXPECT_TRUE(arrived.wait(seconds(5)));
  zero.stop_watching();
  EXPECT_EQ(got.kind, News::Kind::Failure);
  EXPECT_EQ(got.failure.sentence, "rank 1 threw \xff\xfe");
}

TEST(Coordinator, KeepsSecondaryFailuresBackUntilAnnounced) {
  Coordinator coordinator({.roles = {.workers = 2}, .secret = kSecret});
  Event arrived;  // outlives the watching thread
  std::atomic<int> code{0};
  CoordinatorClient zero(client_options(coordinator, 0));
  zero.watch([&](const News& news) {
    code = news.failure.exit_code;
    arrived.set();
  });
  coordinator.fail({.rank = 1, .sentence = "lost rank 0", .exit_code = 160});
  EXPECT_FALSE(arrived.wait(milliseconds(50)));
  coordinator.fail({.rank = 0, .sentence = "killed", .exit_code = 137});
  EXPECT_TRUE(arrived.wait(seconds(5)));
  EXPECT_EQ(code, 137);
}

TEST(Coordinator, PassesStopSignalsOnAlsoToLateWatchers) {
  Coordinator coordinator({.roles = {.workers = 1}, .secret = kSecret});
  coordinator.request_stop(15);
  Event arrived;  // outlives the watching thread
  std::atomic<int> signal{0};
  CoordinatorClient zero(client_options(coordinator, 0));
  zero.watch([&](const News& news) {
    signal = news.stop_signal;
    arrived.set();
  });
  EXPECT_TRUE(arrived.wait(seconds(5)));
  EXPECT_EQ(signal, 15);
}

// A process that throws reports it before it ends; on_failure would end the job.
TEST(Coordinator, TheEvaluatorsFailureIsNobodyElses) {
  std::atomic<int> told{0};
  Coordinator coordinator({.roles = {.workers = 1, .evaluator = true},
                           .secret = kSecret,
                           .on_failure = [&](const Failure&) { ++told; }});
  CoordinatorClient evaluator(client_options(coordinator, 1));
  evaluator.report({.sentence = "the evaluator threw", .exit_code = 20});
  EXPECT_EQ(told, 0);
  EXPECT_FALSE(coordinator.first_failure().has_value());
}

TEST(Coordinator, AnEvaluatorThatHasEndedFailsOnlyExchangesThatNeedIt) {
  Coordinator coordinator({.roles = {.workers = 2, .evaluator = true}, .secret = kSecret});
  CoordinatorClient zero(client_options(coordinator, 0));
  CoordinatorClient one(client_options(coordinator, 1));
  CoordinatorClient evaluator(client_options(coordinator, 2));
  coordinator.end(2);
  std::thread waiting([&] {
    std::vector<std::string> values;
    EXPECT_EQ(error_of([&] {
                values = zero.exchange("hosts", "a", seconds(5), {0, 2});
              }).exit_code,
              0);
    EXPECT_THAT(values, ElementsAre("a", "b"));
  });
  std::vector<std::string> values;
  EXPECT_EQ(error_of([&] {
              values = one.exchange("hosts", "b", seconds(5), {0, 2});
            }).exit_code,
            0);
  waiting.join();
  EXPECT_THAT(values, ElementsAre("a", "b"));
  const ErrorReport report = error_of([&] { zero.exchange("all", "a", seconds(5)); });
  EXPECT_EQ(report.exit_code, 160);
  EXPECT_THAT(report.sentence, HasSubstr("the evaluator has ended"));
}

TEST(Coordinator, GroupsThatBeginAlikeDoNotShareAnExchange) {
  Coordinator coordinator({.roles = {.workers = 1, .servers = 1}, .secret = kSecret});
  CoordinatorClient worker(client_options(coordinator, 0));
  CoordinatorClient server(client_options(coordinator, 1));
  EXPECT_EQ(error_of([&] { server.exchange("key", "b", milliseconds(50)); }).exit_code, 161);
  EXPECT_THAT(worker.exchange("key", "own", seconds(5), {0, 1}), ElementsAre("own"));
  EXPECT_THAT(worker.exchange("key", "all", seconds(5)), ElementsAre("all", "b"));
}

TEST(Coordinator, TellsThatAllWorkersHaveEndedAlsoToLateWatchers) {
  Coordinator coordinator({.roles = {.workers = 1, .servers = 1}, .secret = kSecret});
  coordinator.finish();
  Event arrived;  // outlives the watching thread
  std::atomic<bool> finished{false};
  CoordinatorClient server(client_options(coordinator, 1));
  server.watch([&](const News& news) {
    if (news.kind != News::Kind::Finished) return;  // servers are news as well
    finished = true;
    arrived.set();
  });
  EXPECT_TRUE(arrived.wait(seconds(5)));
  EXPECT_TRUE(finished);
}

TEST(Coordinator, ItsEndIsNewsForWhoWatches) {
  auto coordinator =
      std::make_unique<Coordinator>(CoordinatorOptions{.roles = {.workers = 1}, .secret = kSecret});
  Event arrived;  // outlives the watching thread
  std::atomic<bool> lost{false};
  CoordinatorClient zero(client_options(*coordinator, 0));
  zero.watch([&](const News& news) {
    lost = news.kind == News::Kind::CoordinatorLost;
    arrived.set();
  });
  zero.heartbeat({}, seconds(5));
  coordinator.reset();
  EXPECT_TRUE(arrived.wait(seconds(5)));
  EXPECT_TRUE(lost);
}

// The epochs that a client was told of.
class Epochs {
 public:
  explicit Epochs(CoordinatorClient& client) {
    client.watch([this](const News& news) {
      std::lock_guard lock(mutex_);
      if (news.kind == News::Kind::Epoch) told_.push_back(news.epoch);
    });
  }
  Epoch next() {
    for (;; Event().wait(milliseconds(1))) {
      std::lock_guard lock(mutex_);
      if (told_.size() > read_) return told_[read_++];
    }
  }

 private:
  std::mutex mutex_;
  std::vector<Epoch> told_;
  std::size_t read_ = 0;
};

TEST(ElasticCoordinator, TellsEachProcessTheRanks) {
  Coordinator coordinator(
      {.roles = {.workers = 3}, .secret = kSecret, .elastic = Epoch{.members = {0, 1}}});
  CoordinatorClient zero(client_options(coordinator, 0)), two(client_options(coordinator, 2));
  Epochs to_zero(zero), to_two(two);
  EXPECT_EQ(to_zero.next(), (Epoch{.members = {0, 1}}));
  EXPECT_EQ(to_two.next(), (Epoch{.members = {0, 1}}));
  const Epoch next{.number = 1, .members = {0, 2}, .cause = "rank 1 was killed"};
  coordinator.regroup(next);
  EXPECT_EQ(to_zero.next(), next);
  EXPECT_EQ(to_two.next(), next);
  two.stop_watching();
  zero.stop_watching();
}

TEST(ElasticCoordinator, AnExchangeOfAnEarlierEpochFails) {
  Coordinator coordinator(
      {.roles = {.workers = 3}, .secret = kSecret, .elastic = Epoch{.members = {0, 1}}});
  CoordinatorClient zero(client_options(coordinator, 0));
  const CoordinatorClient::Group first{.members = {0, 1}, .epoch = 0};
  std::thread waits([&] {
    EXPECT_EQ(error_of([&] { zero.exchange("a", "", seconds(20), first); }).exit_code, 160);
  });
  coordinator.regroup({.number = 1, .members = {0, 2}, .cause = "rank 1 was killed"});
  waits.join();
  EXPECT_THAT(error_of([&] { zero.exchange("a", "", seconds(20), first); }).sentence,
              HasSubstr("rank 1 was killed"));
  CoordinatorClient two(client_options(coordinator, 2));
  const CoordinatorClient::Group second{.members = {0, 2}, .epoch = 1};
  std::thread other([&] { two.exchange("a", "two", seconds(20), second); });
  EXPECT_THAT(zero.exchange("a", "zero", seconds(20), second), ElementsAre("zero", "two"));
  other.join();
}

TEST(ElasticCoordinator, AProcessWithoutAPlaceThatLeavesBreaksNoExchange) {
  Coordinator coordinator(
      {.roles = {.workers = 3}, .secret = kSecret, .elastic = Epoch{.members = {0, 1}}});
  const CoordinatorClient::Group ranks{.members = {0, 1}, .epoch = 0};
  CoordinatorClient(client_options(coordinator, 2)).leave();
  CoordinatorClient zero(client_options(coordinator, 0)), one(client_options(coordinator, 1));
  std::thread other([&] { one.exchange("a", "one", seconds(20), ranks); });
  EXPECT_THAT(zero.exchange("a", "zero", seconds(20), ranks), ElementsAre("zero", "one"));
  other.join();
}

TEST(ElasticCoordinator, AForgottenProcessIsAStrangerAndMayComeAgain) {
  Coordinator coordinator(
      {.roles = {.workers = 2}, .secret = kSecret, .elastic = Epoch{.members = {0, 1}}});
  CoordinatorClient old(client_options(coordinator, 1));
  coordinator.forget(1);
  EXPECT_EQ(error_of([&] { old.heartbeat({}, seconds(5)); }).exit_code, 11);
  const CoordinatorClient again(client_options(coordinator, 1));
}

// A build or a model that differs is refused without ending the job of the others.
TEST(ElasticCoordinator, RefusesANewcomerThatDiffersAlone) {
  Coordinator coordinator(
      {.roles = {.workers = 2}, .secret = kSecret, .elastic = Epoch{.members = {0}}});
  ClientOptions options = client_options(coordinator, 0);
  options.identity = "model = a";
  const CoordinatorClient zero(options);
  options.rank = 1;
  options.identity = "model = b";
  EXPECT_EQ(error_of([&] { const CoordinatorClient one(options); }).exit_code, 10);
  EXPECT_FALSE(coordinator.first_failure());
}

TEST(ElasticCoordinator, NamesRanksThatFallSilent) {
  Coordinator coordinator(
      {.roles = {.workers = 3}, .secret = kSecret, .elastic = Epoch{.members = {0, 1}}});
  CoordinatorClient zero(client_options(coordinator, 0)), two(client_options(coordinator, 2));
  zero.heartbeat({}, seconds(5));
  EXPECT_THAT(coordinator.silent(std::chrono::hours(1)), ElementsAre());
  while (coordinator.silent(milliseconds(5)).empty()) Event().wait(milliseconds(1));
  EXPECT_THAT(coordinator.silent(milliseconds(5)), ElementsAre(0)) << "2 is no rank, 1 not there";
}

}  // namespace
}  // namespace trireme::rendezvous
