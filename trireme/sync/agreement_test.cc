// Votes of the ranks on a step.
#include "trireme/sync/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/utf8.h"
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

}  // namespace
}  // namespace trireme::agreement_test
