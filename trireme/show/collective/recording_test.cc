// Every algorithm of the registry, recorded: its final content is complete, and it sends exactly
// the bytes that its routes say.
#include "trireme/show/collective/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "trireme/base/error.h"
#include "trireme/comm/choice/cost.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/show/collective/collective.h"
#include "trireme/show/collective/cost.h"

namespace trireme {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace show;

struct Case {
  comm::OpKind kind;
  std::string algorithm;
  int ranks;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (comm::OpKind kind : drawn_kinds()) {
    for (const auto* entry : comm::algorithms_of(kind)) {
      for (int ranks : {2, 3, 4, 5, 8}) all.push_back({kind, entry->name, ranks});
    }
  }
  return all;
}

class EveryAlgorithm : public ::testing::TestWithParam<Case> {};

TEST_P(EveryAlgorithm, EndsCompleteWithTheBytesOfItsRoutes) {
  const auto& [kind, algorithm, ranks] = GetParam();
  const int root = has_root(kind) ? ranks - 1 : 0;
  const Recording recording =
      record({.kind = kind, .algorithm = algorithm, .ranks = ranks, .root = root, .hosts = 2});
  EXPECT_THAT(recording.faults(), ElementsAre());

  const auto* entry = comm::find_algorithm(kind, algorithm);
  const std::uint32_t leaves = leaves_of(kind, ranks);
  const auto routes = comm::resolve(
      algorithm, comm::record(algorithm, entry->generator, ranks, root, recording.host_of_rank),
      comm::layout_of(kind, ranks, leaves, root));
  // The routes' buffer has a chunk for every pair of ranks, the recording's is one rank's buffer.
  const int per_rank = kind == comm::OpKind::AllToAll ? ranks : 1;
  std::vector<std::size_t> expected;
  for (double buffers : comm::buffers_sent(routes)) {
    expected.push_back(static_cast<std::size_t>(
        buffers * per_rank * static_cast<double>(recording.buffer_bytes) + 0.5));
  }
  EXPECT_EQ(recording.sent(), expected);
  EXPECT_EQ(recording.rounds(), shape_of(recording).rounds);
  // A message holds what its sender held at the end of the previous step.
  for (std::size_t i = 1; i < recording.steps.size(); ++i) {
    for (const Message& one : recording.steps[i].messages) {
      const auto chunk = static_cast<std::size_t>(one.chunk);
      const auto from = static_cast<std::size_t>(one.from);
      EXPECT_THAT(recording.steps[i - 1].cells[from][chunk], ::testing::Contains(one.parts));
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    for (int chunk = 0; chunk < recording.num_chunks; ++chunk) {
      const Parts& want = recording.want[rank][chunk];
      if (want.empty()) continue;
      EXPECT_THAT(recording.steps.back().cells[rank][chunk], ElementsAre(want));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Show, EveryAlgorithm, ::testing::ValuesIn(cases()), [](const auto& info) {
  std::string name(comm::name_of(info.param.kind));
  name += "_" + info.param.algorithm + "_" + std::to_string(info.param.ranks);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST(Recording, RoundsAndBytesAreThoseOfTheClosedFormulas) {
  int held = 0;
  for (const Case& one : cases()) {
    SCOPED_TRACE(title_of(one.kind) + " " + one.algorithm + " " + std::to_string(one.ranks));
    const Recording recording =
        record({.kind = one.kind, .algorithm = one.algorithm, .ranks = one.ranks});
    const auto sent = recording.sent();
    const auto bytes = static_cast<double>(recording.buffer_bytes);
    const auto* entry = comm::find_algorithm(one.kind, one.algorithm);
    if (!entry) continue;  // direct
    const auto cost = entry->cost({.size = one.ranks, .bytes = bytes});
    EXPECT_EQ(recording.rounds(), cost.rounds);
    const auto most = static_cast<double>(*std::max_element(sent.begin(), sent.end()));
    EXPECT_NEAR(most, cost.bytes_sent_max_rank, 0.5);
    ++held;
  }
  EXPECT_GE(held, 30);
}

// Patarasuk and Yuan: each rank sends 2(n-1)/n of the buffer if only siblings are added.
TEST(Recording, RingOfTwoSendsTheBufferOnce) {
  const Recording ring = record({.kind = comm::OpKind::AllReduce, .algorithm = "ring", .ranks = 2});
  EXPECT_EQ(ring.rounds(), 2);
  EXPECT_EQ(ring.buffer_bytes, 128u);
  EXPECT_THAT(ring.sent(), ElementsAre(128u, 128u));
  EXPECT_THAT(ring.steps[1].added, ElementsAre(64u, 64u));
  EXPECT_THAT(ring.steps[1].cells[0][1], ElementsAre(Parts{0, 1}));
}

TEST(Recording, NaiveSendsEverythingToEveryone) {
  const Recording naive =
      record({.kind = comm::OpKind::AllReduce, .algorithm = "naive", .ranks = 5});
  EXPECT_EQ(naive.rounds(), 1);
  EXPECT_THAT(naive.sent(), ::testing::Each(4 * naive.buffer_bytes));
}

TEST(Recording, DirectReadsAndWritesTheOthersMemory) {
  for (int ranks : {2, 3, 4, 5, 8}) {
    const Recording direct =
        record({.kind = comm::OpKind::AllReduce, .algorithm = "direct", .ranks = ranks});
    EXPECT_EQ(direct.rounds(), 2);
    EXPECT_THAT(direct.faults(), ElementsAre());
    const std::size_t slices = 64u * static_cast<std::size_t>(ranks - 1);
    EXPECT_THAT(direct.read(), ::testing::Each(slices));
    EXPECT_THAT(direct.sent(), ::testing::Each(slices));
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_THAT(direct.steps[1].cells[rank][rank], ElementsAre(direct.want[rank][rank]));
      EXPECT_THAT(direct.steps[1].cells[rank][(rank + 1) % ranks], ElementsAre(Parts{rank}));
    }
  }
}

TEST(Recording, StepsFollowTheMessagesNotTheRanksOwnCount) {
  const Recording tree =
      record({.kind = comm::OpKind::Broadcast, .algorithm = "binomial", .ranks = 8});
  ASSERT_EQ(tree.rounds(), 3);
  // Rank 4 has one round of its own, the third step.
  EXPECT_TRUE(tree.steps[2].cells[4][0].empty());
  EXPECT_THAT(tree.steps[3].cells[4][0], ElementsAre(Parts{0}));
}

TEST(Recording, SaysWhatIsWrong) {
  Recording ring = record({.kind = comm::OpKind::AllReduce, .algorithm = "ring", .ranks = 3});
  ring.out[1][2] = {0, 0, 1};
  EXPECT_THAT(ring.faults(), ElementsAre("rank 1 ends with 0+0+1 in chunk 2, must be 0+1+2"));
}

TEST(Recording, RefusesWhatItCannotRun) {
  const auto refusal = [](RecordOptions options) -> std::string {
    try {
      record(options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal({.algorithm = "rnig"}), HasSubstr("naive, ring"));
  EXPECT_THAT(refusal({.algorithm = "ring", .ranks = 1}), HasSubstr("2 to 20"));
  EXPECT_THAT(refusal({.algorithm = "ring", .ranks = 4, .root = 4}), HasSubstr("no rank 4"));
  EXPECT_THAT(refusal({.algorithm = "ring", .ranks = 4, .hosts = 5}), HasSubstr("5 hosts"));
  EXPECT_THROW(kind_named("all-redcue"), ConfigError);
}

TEST(Recording, WritesPartsAsSums) {
  EXPECT_EQ(text_of(Parts{0, 1, 2, 3}), "0+1+2+3");
  EXPECT_EQ(text_of(Parts{0, 1, 2, 3, 4, 5, 6, 7}), "0+..+7");
  EXPECT_EQ(text_of(Parts{0, 2, 3, 4, 5, 6, 9}), "0+2+..+6+9");
  EXPECT_EQ(text_of(Cell{{0, 1}, {3}}), "0+1, 3");
  EXPECT_EQ(text_of(Cell{}), "");
}

}  // namespace
}  // namespace trireme
