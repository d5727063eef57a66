// Negotiation on the simulated network: random orders of submission, the response cache, refusals.
#include "trireme/comm/negotiate/negotiate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>

#include "trireme/base/error.h"
#include "trireme/comm/collectives.h"
#include "trireme/comm/negotiate/negotiate_table.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::comm {
namespace {

using ::testing::HasSubstr;
using testing::RankContext;
using testing::run_ranks;
using namespace std::chrono_literals;

std::vector<int> shuffled(int count, std::uint64_t seed) {
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

TEST(Negotiate, RanksSubmitInAnyOrder) {
  constexpr int kNames = 12;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const int size = std::array{1, 2, 3, 4, 5, 8}[seed % 6];
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(size) + " ranks");
    run_ranks(
        size,
        [&](RankContext& rank) {
          Negotiator negotiator(*rank.world);
          for (int round = 0; round < 3; ++round) {
            std::vector<std::vector<float>> x(kNames);
            std::vector<Work> works;
            const auto order = shuffled(kNames, seed * 100 + std::uint64_t(rank.rank * 3 + round));
            for (const int i : order) {
              auto& one = x[static_cast<std::size_t>(i)];
              one.assign(static_cast<std::size_t>(1 + i * i * 40), float(rank.rank + i + round));
              works.push_back(
                  negotiator.all_reduce("grad." + std::to_string(i), buffer_of(one), Sum));
              if (i % 4 == 0) rank.waiter->sleep(3us);
            }
            barrier(*rank.world);  // other calls are independent of the negotiator
            Work::all(works).wait();
            for (int i = 0; i < kNames; ++i) {
              const auto& one = x[static_cast<std::size_t>(i)];
              const float sum = float(size * (i + round) + size * (size - 1) / 2);
              ASSERT_EQ(one, std::vector<float>(one.size(), sum)) << i;
            }
          }
          const auto statistics = negotiator.statistics();
          EXPECT_EQ(statistics.submitted, 3u * kNames);
          EXPECT_EQ(statistics.by_number, 2u * kNames) << "the response cache";
        },
        {.seed = seed});
  }
}

// Rank 1 comes to the end of its own negotiator later than `timeout`.
TEST(Negotiate, APeerInUserCodeIsWaitedForAtTheEnd) {
  struct Patient final : PeerWatch {
    Verdict ask(std::string_view, Duration) override { return {.keep_waiting = true}; }
    void activity(std::string_view, bool) noexcept override {}
  };
  for (const int late : {0, 1}) {
    run_ranks(3, [&](RankContext& rank) {
      Communicator world(rank.transport, {.watch = std::make_shared<Patient>(),
                                          .on_stall = [](std::string_view) {}});
      {
        Negotiator negotiator(world);
        std::vector<float> x{1};
        negotiator.all_reduce("x", buffer_of(x), Sum).wait();
        if (rank.rank == late) rank.waiter->sleep(100s);
      }
      barrier(world);
    });
  }
}

// Its connections have not ended: only the watch knows.
TEST(Negotiate, ALostRankIsNoMissingSubmission) {
  struct Knowing final : PeerWatch {
    Verdict ask(std::string_view, Duration) override { return {.lost_rank = 1}; }
    void activity(std::string_view, bool) noexcept override {}
  };
  run_ranks(3, [](RankContext& rank) {
    Communicator world(rank.transport, {.watch = std::make_shared<Knowing>()});
    Negotiator negotiator(world);
    if (rank.rank == 1) return rank.waiter->sleep(100s);
    std::vector<float> x{1};
    EXPECT_THAT([&] { negotiator.all_reduce("x", buffer_of(x), Sum).wait(); },
                ::testing::ThrowsMessage<PeerLost>(HasSubstr("rank 1 is lost")));
    rank.waiter->sleep(1s);  // the other one sees it itself
  });
}

TEST(Negotiate, OtherCollectivesTakePart) {
  run_ranks(3, [](RankContext& rank) {
    Negotiator negotiator(*rank.world);
    std::vector<double> x{double(rank.rank)}, all(3), y{rank.rank == 2 ? 7.0 : 0.0}, z{1.0};
    std::vector<Work> works(3);
    for (const int i : shuffled(3, std::uint64_t(rank.rank))) {
      if (i == 0) works[0] = negotiator.all_gather("x", buffer_of(x), buffer_of(all));
      if (i == 1) works[1] = negotiator.broadcast("y", buffer_of(y), 2);
      if (i == 2) works[2] = negotiator.all_reduce("z", buffer_of(z), Max);
    }
    Work::all(works).wait();
    EXPECT_EQ(all, (std::vector<double>{0, 1, 2}));
    EXPECT_EQ(y[0], 7.0);
    EXPECT_EQ(z[0], 1.0);
  });
}

TEST(Negotiate, AFullCacheAndLongNamesStillWork) {
  run_ranks(2, [](RankContext& rank) {
    Negotiator negotiator(*rank.world, {.cached_names = 2});
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 5; ++i) {
        std::vector<float> x{1.0f};
        negotiator.all_reduce(std::string(400, char('a' + i)), buffer_of(x), Sum).wait();
        EXPECT_EQ(x[0], 2.0f);
      }
    }
    EXPECT_EQ(negotiator.statistics().by_number, 2u);
    std::vector<float> x{1.0f};
    EXPECT_THROW((void)negotiator.all_reduce(std::string(401, 'a'), buffer_of(x), Sum),
                 ConfigError);
    EXPECT_THROW((void)negotiator.all_reduce("", buffer_of(x), Sum), ConfigError);
  });
}

TEST(Negotiate, DifferentCallsUnderOneNameAreRefusedAndHurtNothingElse) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    run_ranks(3,
              [](RankContext& rank) {
                Negotiator negotiator(*rank.world);
                std::vector<float> x(rank.rank == 1 ? 5 : 4, 1.0f), y{1.0f};
                const Work bad = negotiator.all_reduce("grad.3", buffer_of(x), Sum);
                const Work good = negotiator.all_reduce("grad.4", buffer_of(y), Sum);
                const TimePoint start = rank.waiter->now();
                try {
                  bad.wait();
                  ADD_FAILURE() << "summed";
                } catch (const MismatchError& error) {
                  EXPECT_THAT(error.what(), HasSubstr("all_reduce(Sum, F32, 5)"));
                  EXPECT_THAT(error.what(), HasSubstr("all_reduce(Sum, F32, 4)"));
                  EXPECT_THAT(error.what(), HasSubstr("grad.3"));
                }
                EXPECT_LT(rank.waiter->now() - start, 100ms);
                EXPECT_EQ(x, std::vector<float>(x.size(), 1.0f));
                good.wait();
                EXPECT_EQ(y[0], 3.0f);
                // The name can be used again.
                std::vector<float> z{2.0f};
                negotiator.all_reduce("grad.3", buffer_of(z), Sum).wait();
                EXPECT_EQ(z[0], 6.0f);
              },
              {.seed = seed});
  }
}

TEST(Negotiate, ADeadlineNamesWhoDidNotSubmitAndWhatItWaitsFor) {
  run_ranks(3, [](RankContext& rank) {
    Negotiator negotiator(*rank.world);
    std::vector<float> x{1.0f};
    const std::string name = rank.rank == 1 ? "head" : "tail";
    try {
      negotiator.all_reduce(name, buffer_of(x), Sum).wait();
      ADD_FAILURE() << "summed";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), HasSubstr(rank.rank == 1 ? "not submitted by rank 0"
                                                         : "not submitted by rank 1"));
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
    // Nothing else failed.
    negotiator.all_reduce("body", buffer_of(x), Sum).wait();
    EXPECT_EQ(x[0], 3.0f);
  });
}

TEST(Negotiate, ANameIsSubmittedOnceAtATime) {
  run_ranks(2, [](RankContext& rank) {
    Negotiator negotiator(*rank.world);
    std::vector<float> x{1.0f}, y{1.0f};
    if (rank.rank == 1) rank.waiter->sleep(1ms);
    const Work first = negotiator.all_reduce("grad", buffer_of(x), Sum);
    if (rank.rank == 0) {
      EXPECT_THROW(negotiator.all_reduce("grad", buffer_of(y), Sum).wait(), ConfigError);
    }
    first.wait();
    EXPECT_EQ(x[0], 2.0f);
  });
}

TEST(Negotiate, ALostPeerFailsWhatIsOpen) {
  run_ranks(3, [](RankContext& rank) {
    std::optional<Negotiator> negotiator(std::in_place, *rank.world);
    std::vector<float> x{1.0f};
    if (rank.rank == 2) {
      rank.waiter->sleep(1ms);
      rank.world->abort(std::make_exception_ptr(PeerLost("rank 2 was killed", {.peer = 2})));
      negotiator.reset();
      rank.world.reset();
      rank.transport.reset();
      return;
    }
    const TimePoint start = rank.waiter->now();
    EXPECT_THROW(negotiator->all_reduce("grad", buffer_of(x), Sum).wait(), PeerLost);
    EXPECT_LT(rank.waiter->now() - start, 1s);
  });
}

TEST(NegotiationTable, EverySubmissionGetsOneAnswer) {
  const GroupFacts facts(0, 3, true, {});
  NegotiationTable table(facts, 10);
  const Signature four{.count = 4}, five{.count = 5};
  const auto hear = [&](int rank, const Signature& signature) {
    std::vector<Record> answers;
    table.hear(rank, {.kind = RecordKind::Ready, .signature = signature, .name = "a"}, answers);
    return answers;
  };
  EXPECT_TRUE(hear(0, four).empty());
  const auto refused = hear(1, five);
  ASSERT_EQ(refused.size(), 2u);
  EXPECT_EQ(refused[0].to, 0);
  EXPECT_EQ(refused[1].to, 1);
  EXPECT_TRUE(hear(0, four).empty()) << "the next round has begun";
  const auto late = hear(2, four);
  ASSERT_EQ(late.size(), 1u) << "rank 2's first submission belongs to the refused round";
  EXPECT_EQ(late[0].to, 2);
  EXPECT_TRUE(hear(2, four).empty());
  const auto go = hear(1, four);
  ASSERT_EQ(go.size(), 1u);
  EXPECT_EQ(go[0].kind, RecordKind::Go);
  EXPECT_EQ(go[0].number, 1u);
}

TEST(NegotiationTable, ARankThatIsTwoRoundsLateIsRefusedTwice) {
  const GroupFacts facts(0, 3, true, {});
  NegotiationTable table(facts, 10);
  const auto hear = [&](int rank, RecordKind kind) {
    std::vector<Record> answers;
    table.hear(rank, {.kind = kind, .name = "a"}, answers);
    return answers;
  };
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(hear(0, RecordKind::Ready).empty());
    EXPECT_TRUE(hear(1, RecordKind::Ready).empty());
    EXPECT_EQ(hear(0, RecordKind::Overdue).size(), 2u);
  }
  for (int round = 0; round < 2; ++round) {
    const auto late = hear(2, RecordKind::Ready);
    ASSERT_EQ(late.size(), 1u);
    EXPECT_EQ(late[0].kind, RecordKind::Refuse);
  }
  EXPECT_TRUE(hear(2, RecordKind::Ready).empty()) << "the third round";
  EXPECT_TRUE(hear(0, RecordKind::Ready).empty());
  EXPECT_EQ(hear(1, RecordKind::Ready)[0].kind, RecordKind::Go);
}

// Ranks have the job's numbers, and no more of them are named than a record holds.
TEST(NegotiationTable, NamesSomeOfManyRanksThatAreMissing) {
  CommunicatorOptions options;
  for (int rank = 0; rank < 300; ++rank) options.world_ranks.push_back(1000 + rank);
  const GroupFacts facts(0, 300, false, options);
  NegotiationTable table(facts, 10);
  std::vector<Record> answers;
  for (int rank = 1; rank < 300; ++rank)
    table.hear(rank, {.kind = RecordKind::Ready, .name = std::string(399, 'n')}, answers);
  table.hear(0, {.kind = RecordKind::Ready, .name = "a"}, answers);
  table.hear(0, {.kind = RecordKind::Overdue, .name = "a"}, answers);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].text.starts_with("not submitted by rank 1001 (which waits for nnn"));
  EXPECT_TRUE(answers[0].text.ends_with(" and 289 more"));
  RecordWriter writer;
  RecordReader reader;
  for (writer.put(answers[0]); !writer.empty();) reader.put(writer.take());
  EXPECT_EQ(reader.take().value().text, answers[0].text);
}

TEST(NegotiationWire, RecordsSurviveAnyCut) {
  std::mt19937_64 random(3);
  RecordWriter writer;
  RecordReader reader;
  std::vector<Record> sent;
  for (int i = 0; i < 200; ++i) {
    Record record{.kind = i % 3 == 0 ? RecordKind::GoByNumber : RecordKind::Refuse,
                  .number = static_cast<std::uint32_t>(random())};
    if (record.kind == RecordKind::Refuse) {
      record.name = std::string(random() % 400, 'n');
      record.text = std::string(random() % 900, 't');
      record.signature.count = random();
    }
    sent.push_back(record);
    writer.put(record);
  }
  std::size_t at = 0;
  while (!writer.empty()) {
    reader.put(writer.take());
    while (const auto record = reader.take()) {
      ASSERT_LT(at, sent.size());
      EXPECT_EQ(record->number, sent[at].number);
      EXPECT_EQ(record->name, sent[at].name);
      EXPECT_EQ(record->text, sent[at].text);
      EXPECT_EQ(record->signature, sent[at].signature);
      ++at;
    }
  }
  EXPECT_EQ(at, sent.size());
  Parcel broken;
  broken.used = 5;
  broken.bytes[0] = 3;  // a record of 3 bytes holds no number
  reader.put(broken);
  EXPECT_THROW((void)reader.take(), RefusedError);
}

}  // namespace
}  // namespace trireme::comm
