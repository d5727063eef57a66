#include "trireme/cli/torch/fit/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<FitCandidate> candidates() {
  return {{.sync = "plain", .lanes = 2, .predicted_bytes = 200},
          {.sync = "plain", .lanes = 1, .predicted_bytes = 160},
          {.sync = "zero1", .lanes = 2, .predicted_bytes = 150},
          {.sync = "zero1", .lanes = 1, .predicted_bytes = 120},
          {.sync = "zero3", .predicted_bytes = 90},
          {.sync = "hybrid", .shard = 2, .predicted_bytes = 10, .impossible = "3 ranks"}};
}

TEST(Fit, TriesTheMostLanesOfEachLayoutThatFits) {
  EXPECT_THAT(to_try(candidates(), 1000), ElementsAre(0u, 2u, 4u));
  EXPECT_THAT(to_try(candidates(), 170), ElementsAre(1u, 2u, 4u));
  EXPECT_THAT(to_try(candidates(), 100), ElementsAre(4u));
  EXPECT_THAT(to_try(candidates(), 10), ElementsAre());
}

TEST(Fit, ChoosesTheFirstThatFitsWhereNothingWasTried) {
  EXPECT_EQ(choose_fit(candidates(), 1000), 0u);
  EXPECT_EQ(choose_fit(candidates(), 170), 1u);
  EXPECT_EQ(choose_fit(candidates(), 100), 4u);
  EXPECT_EQ(choose_fit(candidates(), 89), std::nullopt);
}

TEST(Fit, ChoosesTheFastestThatWasTriedAndFitted) {
  std::vector<FitCandidate> all = candidates();
  all[0].step_seconds = 1.0;
  all[2].step_seconds = 0.98;  // within 3 %: the first is taken
  all[4].step_seconds = 1.5;
  EXPECT_EQ(choose_fit(all, 1000), 0u);
  all[2].step_seconds = 0.9;
  EXPECT_EQ(choose_fit(all, 1000), 2u);
  all[2].measured_bytes = 1001;  // more than was predicted
  EXPECT_EQ(choose_fit(all, 1000), 0u);
  all[0].failure = "ended with 137";
  EXPECT_EQ(choose_fit(all, 1000), 4u) << "those that were not tried are not known to be fast";
}

// Recomputation saves memory; the predicted time decides whether it is worthwhile.
TEST(Fit, GoesByPredictedTimeWhereThereIsOne) {
  std::vector<FitCandidate> all = {
      {.sync = "plain", .lanes = 2, .predicted_bytes = 200, .predicted_seconds = 0.5},
      {.sync = "plain",
       .lanes = 2,
       .recompute = "full",
       .predicted_bytes = 140,
       .predicted_seconds = 0.66},
      {.sync = "plain", .lanes = 1, .predicted_bytes = 150, .predicted_seconds = 1},
      {.sync = "zero1", .lanes = 2, .predicted_bytes = 160, .predicted_seconds = 0.51}};
  EXPECT_THAT(to_try(all, 1000), ElementsAre(0u, 3u));
  EXPECT_EQ(choose_fit(all, 1000), 0u) << "0.51 is within 3 % of it";
  EXPECT_THAT(to_try(all, 170), ElementsAre(1u, 3u));
  EXPECT_EQ(choose_fit(all, 170), 3u);
  EXPECT_EQ(choose_fit(all, 155), 1u) << "two lanes that compute again beat one";
  all[1].failure = "ended with 137";
  EXPECT_EQ(choose_fit(all, 155), 2u);
  all[3].step_seconds = 0.9;
  EXPECT_EQ(choose_fit(all, 170), 3u) << "one that was tried goes before promises";
}

TEST(Fit, TheTableSaysAllThatWasConsidered) {
  std::vector<FitCandidate> all = candidates();
  all[4].step_seconds = 0.0123;
  all[4].measured_bytes = 95'000'000;
  all[4].predicted_bytes = 90'400'000;
  all[4].predicted_seconds = 0.0101;
  all[4].recompute = "every-2";
  all[3].failure = "ended with 137";
  const std::string table = fit_table(all, 100'000'000, 4);
  EXPECT_THAT(table, HasSubstr("memory,               a step,             fits into\n"));
  EXPECT_THAT(table, HasSubstr("predicted   measured  predicted   measured  100 MB a rank\n"));
  EXPECT_THAT(table, HasSubstr("  zero3            1 every-2              1    90.4 MB    95.0 MB"
                               "    10.1 ms    12.3 ms  yes, chosen\n"));
  EXPECT_THAT(table, HasSubstr("no: ended with 137\n"));
  EXPECT_THAT(table, HasSubstr("  hybrid of 2 "));
  EXPECT_THAT(table, HasSubstr("cannot be: 3 ranks\n"));
}

}  // namespace
}  // namespace trireme::cli
