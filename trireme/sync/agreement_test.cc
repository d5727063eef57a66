// Votes of the ranks on a step, and a rank that leaves.
#include "trireme/sync/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/utf8.h"
#include "trireme/comm/collectives.h"
#include "trireme/comm/simulate.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::agreement_test {
namespace {

TEST(Vote, CutsALongReasonBetweenCharacters) {
  testing::run_ranks(2, [](testing::RankContext& rank) {
    std::string text = "x";
    for (int i = 0; i < 300; ++i) text += "ä";
    parallel::LocalVote own;
    if (rank.rank == 1) own.refuse(21, text, text);
    const parallel::Verdict verdict = parallel::Vote(*rank.world, own).result();
    for (const std::string& said : {verdict.reason, verdict.advice}) {
      EXPECT_TRUE(is_utf8(said)) << said;
      EXPECT_THAT(said, ::testing::HasSubstr("ää… (601 bytes)"));
    }
  });
}

// The rank's transport ends as soon as leave() has returned.
TEST(Leave, ToldWhyWhateverEndsFirst) {
  for (const bool shared_memory : {true, false}) {
    for (const int size : {2, 3, 5}) {
      for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        SCOPED_TRACE(std::to_string(size) + " ranks, seed " + std::to_string(seed) +
                     (shared_memory ? ", shared memory" : ""));
        comm::simulate(
            size, {.network = {.seed = seed, .shared_memory = shared_memory}},
            [](comm::SimulatedRank& rank) {
              barrier(*rank.world);
              if (rank.rank == 1) return parallel::leave(*rank.world);
              try {
                parallel::enter_barrier(*rank.world, {.batch = 3, .total = 2}, "h").wait();
                ADD_FAILURE() << "the barrier ended";
              } catch (const UnevenInput& error) {
                EXPECT_EQ(error.peer(), 1) << error.what();
              } catch (const std::exception& error) {
                ADD_FAILURE() << error.what();
              }
            });
      }
    }
  }
}

}  // namespace
}  // namespace trireme::agreement_test
