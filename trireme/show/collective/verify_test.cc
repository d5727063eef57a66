// The output of `trireme verify` for right and wrong algorithms: the sentence, the drawing, the
// advice.
#include "trireme/show/collective/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/rounds/registry.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace show;

// The first flaw of `generator` on 2 to `most` ranks.
Flaw first_flaw(const std::string& name, comm::Generator generator, int most = 4) {
  register_all_reduce(name, std::move(generator));
  const Verdict verdict = verify({.algorithm = name, .most = most, .seeds = 3});
  if (!verdict.flaws.empty()) return verdict.flaws.front();
  ADD_FAILURE() << name << " was found right";
  return {};
}

void ring(Algorithm& a) {
  for (int s = 0; s < a.size - 1; ++s) {
    a.send(a.next(), a.chunk(a.rank - s)).add_from(a.prev(), a.chunk(a.rank - s - 1));
  }
  for (int s = 0; s < a.size - 1; ++s) {
    a.send(a.next(), a.chunk(a.rank + 1 - s)).copy_from(a.prev(), a.chunk(a.rank - s));
  }
}

TEST(Verify, FindsEveryShippedAllReduceRight) {
  for (const auto* entry : comm::algorithms_of(comm::OpKind::AllReduce)) {
    if (!comm::ships(*entry)) continue;
    const Verdict verdict = verify({.algorithm = entry->name, .most = 6, .seeds = 10});
    EXPECT_THAT(verdict.flaws, IsEmpty()) << entry->name << ": " << verdict.flaws.front().what;
    EXPECT_EQ(verdict.runs, 10);
    ASSERT_EQ(verdict.counts.size(), 5u);
    EXPECT_EQ(verdict.counts[0].runs, 2);
  }
}

TEST(Verify, PlacesRanksEvenlyAndNot) {
  using Hosts = std::vector<std::vector<int>>;
  EXPECT_EQ(placements(5, 2), (Hosts{{0, 0, 0, 1, 1}, {0, 0, 0, 0, 1}, {0, 1, 0, 1, 0}}));
  EXPECT_EQ(placements(3, 1), (Hosts{{0, 0, 0}}));
  EXPECT_EQ(placements(2, 4), (Hosts{{0, 1}}));
}

TEST(Verify, FindsEveryShippedAllReduceRightOnSeveralHosts) {
  for (const auto* entry : comm::algorithms_of(comm::OpKind::AllReduce)) {
    if (!comm::ships(*entry)) continue;
    for (const int hosts : {2, 3}) {
      const Verdict verdict =
          verify({.algorithm = entry->name, .most = 7, .seeds = 18, .hosts = hosts});
      EXPECT_THAT(verdict.flaws, IsEmpty()) << entry->name << ": " << verdict.flaws.front().what;
    }
  }
}

// Correct only if each host's ranks are neighbours: it compares the hosts of adjacent ranks.
TEST(Verify, FindsWhatIsWrongOnSomePlacementsOnly) {
  register_all_reduce("own-neighbours", [](Algorithm& a) {
    for (int rank = 1; rank < a.size; ++rank) {
      if (a.host_of_rank[static_cast<std::size_t>(rank)] <
          a.host_of_rank[static_cast<std::size_t>(rank) - 1]) {
        return;  // forgets to do anything
      }
    }
    ring(a);
  });
  EXPECT_THAT(verify({.algorithm = "own-neighbours", .most = 4, .seeds = 3}).flaws, IsEmpty());
  const Verdict verdict =
      verify({.algorithm = "own-neighbours", .most = 4, .seeds = 3, .hosts = 2});
  ASSERT_EQ(verdict.flaws.size(), 2u);  // 2 ranks on 2 hosts are neighbours
  EXPECT_EQ(verdict.flaws[0].ranks, 3);
}

TEST(Verify, OnesOwnThatIsRight) {
  register_all_reduce("own-ring", ring);
  const Verdict verdict = verify({.algorithm = "own-ring", .most = 5, .seeds = 8});
  EXPECT_THAT(verdict.flaws, IsEmpty());
  EXPECT_EQ(verdict.counts[0].shape.rounds, 2);
  EXPECT_DOUBLE_EQ(verdict.counts[0].most_sent, 1);
}

TEST(Verify, DrawsACircleOfRanksThatWait) {
  const Flaw flaw = first_flaw(
      "all-first-take",
      [](Algorithm& a) {
        a.chunks(1);
        a.round().add_from(a.prev(), a.chunk(0));
        a.send(a.next(), a.chunk(0));
      },
      3);
  EXPECT_EQ(flaw.ranks, 2);
  EXPECT_THAT(flaw.what,
              HasSubstr("rank 0 waits for ever in its round 1 for rank 1 to send chunk 0"));
  EXPECT_EQ(flaw.drawing,
            "rank 0  round 1: waits for rank 1 to send chunk 0\n"
            "rank 1  round 1: waits for rank 0 to send chunk 0\n"
            "rank 0 -> rank 1 -> rank 0: a circle\n");
  EXPECT_THAT(flaw.advice, HasSubstr("in a circle"));
}

TEST(Verify, DrawsAChainThatEndsInARankThatHasEnded) {
  const std::vector<comm::RouteError::Wait> waits = {{0, 1, 2, 5, true}, {2, 0, 1, 3, false}};
  EXPECT_EQ(drawing_of(waits, 3),
            "rank 0  round 2: waits for rank 2 to send chunk 5\n"
            "rank 1  has ended\n"
            "rank 2  round 1: waits for rank 1 to receive chunk 3\n"
            "rank 0 -> rank 2 -> rank 1, which has ended\n");
}

TEST(Verify, NamesAPartThatIsAddedTwice) {
  const Flaw flaw = first_flaw("twice", [](Algorithm& a) {
    a.chunks(1);
    for (int s = 1; s < 3; ++s) a.send(a.next(), a.chunk(0)).add_from(a.prev(), a.chunk(0));
  });
  EXPECT_THAT(flaw.what, HasSubstr("twice to chunk 0"));
  EXPECT_THAT(flaw.advice, HasSubstr("copy_from"));
}

TEST(Verify, ShowsWhatEverybodyHeldWhereASumIsMissing) {
  // One round is missing: correct on 2 ranks, wrong on 3 and 4.
  register_all_reduce("short", [](Algorithm& a) {
    a.chunks(1);
    auto round = a.round();
    for (int peer : {a.rank - 1, a.rank + 1}) {
      if (peer < 0 || peer >= a.size) continue;
      round.send(peer, a.chunk(0)).add_from(peer, a.chunk(0));
    }
  });
  const Verdict verdict = verify({.algorithm = "short", .most = 4, .seeds = 2});
  ASSERT_EQ(verdict.flaws.size(), 2u);
  ASSERT_EQ(verdict.counts.size(), 1u);
  EXPECT_EQ(verdict.counts[0].ranks, 2);
  EXPECT_EQ(verdict.flaws[0].ranks, 3);
  EXPECT_THAT(verdict.flaws[0].what, HasSubstr("rank 0 ends without the whole sum of chunk 0"));
  EXPECT_THAT(verdict.flaws[0].drawing, HasSubstr("rank 0  held  chunk 0: 0, 1\n"));
  EXPECT_THAT(verdict.flaws[0].drawing, HasSubstr("rank 1  held  chunk 0: 0+1+2\n"));
}

TEST(Verify, NamesAMessageThatNobodyReads) {
  const Flaw flaw = first_flaw("unread", [](Algorithm& a) {
    ring(a);
    if (a.rank == 0) a.send(1, a.chunk(0));
  });
  EXPECT_THAT(flaw.what, HasSubstr("rank 1 never receives what rank 0 sends of chunk 0"));
  EXPECT_THAT(flaw.advice, HasSubstr("Add the receive"));
}

TEST(Verify, NamesACopyOverWhatIsBeingSent) {
  const Flaw flaw = first_flaw("overwrite", [](Algorithm& a) {
    a.chunks(1);
    a.send(a.next(), a.chunk(0)).copy_from(a.prev(), a.chunk(0));
  });
  EXPECT_THAT(flaw.what, HasSubstr("copies into chunk 0 while it sends it"));
  EXPECT_THAT(flaw.advice, HasSubstr("a round later"));
}

TEST(Verify, NamesMessagesThatAreTakenInAnotherOrder) {
  const Flaw flaw = first_flaw("crossed", [](Algorithm& a) {
    a.chunks(2);
    auto round = a.round();
    for (int peer = 0; peer < a.size; ++peer) {
      if (peer == a.rank) continue;
      round.send(peer, a.chunk(0)).send(peer, a.chunk(1));
      round.add_from(peer, a.chunk(1)).add_from(peer, a.chunk(0));
    }
  });
  EXPECT_THAT(flaw.what, HasSubstr("whose next message is chunk 0"));
  EXPECT_THAT(flaw.advice, HasSubstr("in that order"));
}

TEST(Verify, NamesWhatIsNoProgramAtAll) {
  EXPECT_THAT(first_flaw("cuts", [](Algorithm& a) { a.chunks(1 + a.rank); }).what,
              HasSubstr("rank 0 uses 1 chunks, rank 1 uses 2; all ranks must use the same number"));
  EXPECT_THAT(first_flaw("stranger", [](Algorithm& a) { a.send(a.size, a.chunk(0)); }).what,
              HasSubstr("names peer 2"));
  const Flaw thrown = first_flaw("throws", [](Algorithm& a) { std::vector<int>().at(a.rank); });
  EXPECT_THAT(thrown.what, AllOf(HasSubstr("threw"), HasSubstr("out_of_range")));
  EXPECT_THAT(thrown.advice, HasSubstr("only records rounds"));
}

TEST(Verify, OtherCollectivesToo) {
  for (const auto kind : {comm::OpKind::Broadcast, comm::OpKind::AllGather}) {
    for (const auto* entry : comm::algorithms_of(kind)) {
      const Verdict verdict =
          verify({.kind = kind, .algorithm = entry->name, .most = 5, .seeds = 8});
      EXPECT_THAT(verdict.flaws, IsEmpty()) << entry->name;
    }
  }
}

TEST(Verify, RefusesARangeThatIsNone) {
  EXPECT_THROW(verify({.algorithm = "ring", .least = 1}), ConfigError);
  EXPECT_THROW(verify({.algorithm = "ring", .least = 5, .most = 4}), ConfigError);
  EXPECT_THROW(verify({.algorithm = "rnig"}), ConfigError);
}

}  // namespace
}  // namespace trireme
