#include "trireme/launch/elastic_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/check.h"
#include "trireme/base/error.h"

namespace trireme::inline v0::launch {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TimePoint kStart{};

TEST(ElasticGroup, GoesOnWithTheRanksThatAreLeft) {
  ElasticGroup group({.min = 1, .max = 3}, 3);
  EXPECT_THAT(group.first_processes(), ElementsAre(0, 1, 2));
  const auto decision = group.lost(1, "rank 1 was killed", true, kStart);
  ASSERT_TRUE(decision.epoch);
  EXPECT_EQ(decision.epoch->number, 1u);
  EXPECT_THAT(decision.epoch->members, ElementsAre(0, 2));
  EXPECT_FALSE(decision.epoch->at_step_end);
  EXPECT_THAT(decision.line, HasSubstr("rank 1 was killed; the job goes on with 2 ranks"));
  ASSERT_EQ(decision.starts.size(), 1u);
  EXPECT_EQ(decision.starts[0].process, 1);
  EXPECT_EQ(decision.starts[0].delay, Duration::zero());
}

TEST(ElasticGroup, TakesANewProcessUpAtAStepsEnd) {
  ElasticGroup group({.min = 1, .max = 3}, 3);
  group.lost(1, "", true, kStart);
  const auto decision = group.joined(1);
  ASSERT_TRUE(decision.epoch);
  EXPECT_TRUE(decision.epoch->at_step_end);
  EXPECT_THAT(decision.epoch->members, ElementsAre(0, 1, 2));
}

TEST(ElasticGroup, ASpareTakesThePlaceAtOnce) {
  ElasticGroup group({.min = 2, .max = 2, .spares = 1}, 2);
  EXPECT_THAT(group.first_processes(), ElementsAre(0, 1, 2));
  EXPECT_FALSE(group.joined(2).epoch);
  const auto decision = group.lost(0, "", true, kStart);
  ASSERT_TRUE(decision.epoch);
  EXPECT_THAT(decision.epoch->members, ElementsAre(1, 2));
  EXPECT_FALSE(group.joined(0).epoch);  // the new spare
}

// A host is away for hours.
TEST(ElasticGroup, TriesThatReachNoHostDoNotCountAsRestarts) {
  ElasticGroup group({.min = 1, .max = 2, .restarts = 2}, 2);
  EXPECT_EQ(group.lost(1, "", true, kStart).starts.size(), 1u);
  for (int i = 0; i < 100; ++i) {
    group.not_started();
    ASSERT_EQ(group.lost(1, "", true, kStart + seconds(i)).starts.size(), 1u) << i;
  }
  EXPECT_TRUE(group.joined(1).epoch);
  EXPECT_EQ(group.lost(1, "", true, kStart).starts.size(), 1u);
  EXPECT_TRUE(group.lost(1, "", true, kStart).starts.empty());
}

TEST(ElasticGroup, WaitsBelowTheMinimum) {
  ElasticGroup group({.min = 2, .max = 2}, 2);
  const auto waits = group.lost(1, "rank 1 was killed", true, kStart);
  ASSERT_TRUE(waits.epoch);
  EXPECT_THAT(waits.epoch->members, IsEmpty());
  EXPECT_THAT(waits.line, HasSubstr("waits for 1 process"));
  EXPECT_FALSE(waits.give_up);
  const auto goes_on = group.joined(1);
  ASSERT_TRUE(goes_on.epoch);
  EXPECT_FALSE(goes_on.epoch->at_step_end);  // nobody is in a step
  EXPECT_THAT(goes_on.epoch->members, ElementsAre(0, 1));
}

TEST(ElasticGroup, GivesUpIfNobodyComesAndSaysWhy) {
  ElasticGroup group({.min = 2, .max = 2, .restarts = 1}, 2);
  EXPECT_FALSE(group.lost(1, "", true, kStart).give_up);
  EXPECT_TRUE(group.joined(1).epoch);
  const auto decision = group.lost(1, "rank 1 was killed", true, kStart + seconds(60));
  EXPECT_TRUE(decision.give_up);
  EXPECT_THAT(decision.line, HasSubstr("after 1 restart within an hour"));
  EXPECT_THAT(decision.line, HasSubstr("fewer than elastic.min = 2"));
}

// A first end costs no time, whenever it comes; a program that ends at its start does not use up all restarts
// at once.
TEST(RestartDelay, GrowsWhileEndsFollowStarts) {
  using std::chrono::seconds;
  const RestartPace pace{.soon = seconds(20), .first = seconds(1)};
  RestartDelay delay;
  TimePoint now{};
  EXPECT_EQ(delay.next(now, pace), seconds(0));
  for (const int expected : {1, 2, 4, 8, 16, 32, 64, 64}) {
    const Duration next = delay.next(now += seconds(19), pace);
    EXPECT_EQ(next, seconds(expected));
    now += next;
  }
  EXPECT_EQ(delay.next(now + seconds(20), pace), seconds(0)) << "it has worked meanwhile";
}

TEST(ElasticGroup, CountsRestartsOfTheLastHour) {
  ElasticGroup group({.min = 1, .max = 2, .restarts = 1}, 2);
  EXPECT_EQ(group.lost(1, "", true, kStart).starts.size(), 1u);
  group.joined(1);
  EXPECT_EQ(group.lost(1, "", true, kStart + hours(2)).starts.size(), 1u);
}

TEST(ElasticGroup, WaitsLongerEachTimeThatAProcessEndsSoon) {
  ElasticGroup group({.min = 1, .max = 2}, 2);
  TimePoint now = kStart;
  for (const Duration expected :
       {Duration::zero(), Duration(seconds(1)), Duration(seconds(2)), Duration(seconds(4))}) {
    const auto decision = group.lost(1, "", true, now);
    ASSERT_EQ(decision.starts.size(), 1u);
    EXPECT_EQ(decision.starts[0].delay, expected);
    group.joined(1);
    now += decision.starts[0].delay + seconds(2);
  }
  EXPECT_EQ(group.lost(1, "", true, now + seconds(60)).starts[0].delay, Duration::zero());
}

TEST(ElasticGroup, AnErrorOfItsOwnIsNotRepeated) {
  ElasticGroup group({.min = 1, .max = 2}, 2);
  group.lost(1, "", true, kStart);
  const auto decision = group.lost(1, "rank 1 ended with exit code 10", false, kStart);
  EXPECT_THAT(decision.starts, IsEmpty());
  EXPECT_FALSE(decision.epoch);
  EXPECT_FALSE(decision.give_up);
}

TEST(ElasticGroup, GrowsAndShrinksWhenAsked) {
  ElasticGroup group({.min = 1, .max = 4}, 2);
  const auto more = group.resize(4, kStart);
  EXPECT_FALSE(more.epoch);
  ASSERT_EQ(more.starts.size(), 2u);
  EXPECT_THAT(group.joined(2).epoch->members, ElementsAre(0, 1, 2));
  EXPECT_THAT(group.joined(3).epoch->members, ElementsAre(0, 1, 2, 3));
  const auto fewer = group.resize(1, kStart);
  ASSERT_TRUE(fewer.epoch);
  EXPECT_TRUE(fewer.epoch->at_step_end);
  EXPECT_THAT(fewer.epoch->members, ElementsAre(0));
  const auto again = group.resize(2, kStart);  // a process waits already
  EXPECT_THAT(again.starts, IsEmpty());
  EXPECT_THAT(again.epoch->members, ElementsAre(0, 1));
  EXPECT_THAT(group.resize(5, kStart).line, HasSubstr("elastic allows 1 to 4"));
}

// The ranks may still be in a step with it.
TEST(ElasticGroup, ALossOfARankThatWasToLeaveInterruptsTheStep) {
  ElasticGroup group({.min = 1, .max = 4}, 4);
  EXPECT_TRUE(group.resize(2, TimePoint()).epoch->at_step_end);
  const auto decision = group.lost(3, "rank 3 was killed", true, TimePoint());
  ASSERT_TRUE(decision.epoch);
  EXPECT_FALSE(decision.epoch->at_step_end);
  EXPECT_EQ(decision.epoch->number, 2u);
  EXPECT_EQ(decision.epoch->members, (std::vector<int>{0, 1}));
  EXPECT_FALSE(group.lost(2, "process 2 was killed", true, TimePoint()).epoch);
  const auto grown = group.resize(1, TimePoint());
  EXPECT_TRUE(grown.epoch->at_step_end);
  EXPECT_EQ(grown.epoch->interrupted, 2u) << "who hears of this one only has lost its step";
}

TEST(ElasticGroup, KeepsWholeCopiesOfTheModel) {
  ElasticGroup group({.min = 2, .max = 6, .multiple = 2}, 4);
  const auto decision = group.lost(0, "", true, kStart);
  EXPECT_THAT(decision.epoch->members, ElementsAre(1, 2));  // process 3 waits
  EXPECT_THAT(group.joined(0).epoch->members, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(group.resize(3, kStart).line, HasSubstr("in multiples of 2"));
}

TEST(ElasticGroup, GoesOnFromAnEpochWithProcessesThatOthersStart) {
  ElasticGroup group({.min = 2, .max = 3, .spares = 1, .restarts = 1'000'000},
                     {.number = 7, .members = {0, 2, 3}}, {0, 1, 2, 3});
  EXPECT_TRUE(group.is_member(3));
  EXPECT_FALSE(group.joined(1).epoch) << "a spare, as before";
  const auto decision = group.lost(2, "rank 1 is gone", true, kStart);
  ASSERT_TRUE(decision.epoch);
  EXPECT_EQ(decision.epoch->number, 8u);
  EXPECT_THAT(decision.epoch->members, ElementsAre(0, 1, 3)) << "the spare takes the place";
}

// The coordinator before had ended when it had written down that process 2 is lost, and not yet who goes on.
TEST(ElasticGroup, AMemberOfItsFirstEpochThatIsNotThereIsARankThatCanBeLost) {
  ElasticGroup group({.min = 2, .max = 3, .restarts = 1'000'000},
                     {.number = 7, .members = {0, 1, 2}}, {0, 1});
  EXPECT_FALSE(group.joined(2).epoch) << "nobody has been told that it was lost";
  const auto decision = group.lost(2, "rank 2 is gone", true, kStart);
  ASSERT_TRUE(decision.epoch);
  EXPECT_EQ(decision.epoch->number, 8u);
  EXPECT_THAT(decision.epoch->members, ElementsAre(0, 1));
}

TEST(ElasticGroup, KnowsNoProcessesBeyondItsPlaces) {
  ElasticGroup group({.min = 1, .max = 2, .spares = 1}, 2);
  EXPECT_THROW(group.joined(3), CheckFailure) << "a server";
  EXPECT_THROW(group.lost(3, "server 0 is gone", true, kStart), CheckFailure);
  EXPECT_THROW(group.joined(-1), CheckFailure);
}

TEST(ElasticGroup, ANewJobOfProcessesThatOthersStartWaitsForTheFewest) {
  ElasticGroup group({.min = 2, .max = 3}, rendezvous::Epoch(), {});
  EXPECT_FALSE(group.joined(2).epoch);
  const auto decision = group.joined(0);
  ASSERT_TRUE(decision.epoch);
  EXPECT_THAT(decision.epoch->members, ElementsAre(0, 2));
  EXPECT_THAT(group.joined(1).epoch->members, ElementsAre(0, 1, 2));
}

// Ranks 0 and 1 have the first stage, 2 and 3 the second one.
TEST(ElasticGroup, KeepsARankOfEachStageOfAPipeline) {
  const std::vector<std::vector<int>> left = {{1, 2}, {0, 2}, {0, 3}, {0, 2}};
  for (int victim = 0; victim < 4; ++victim) {
    ElasticGroup group({.min = 2, .max = 4, .multiple = 2, .stages = 2}, 4);
    const auto decision = group.lost(victim, "", true, kStart);
    ASSERT_TRUE(decision.epoch);
    EXPECT_EQ(decision.epoch->members, left[victim]) << victim;
    // The dropped one and the one that is started again come at the end of a step.
    const auto grown = group.joined(victim);
    ASSERT_TRUE(grown.epoch);
    EXPECT_THAT(grown.epoch->members, ElementsAre(0, 1, 2, 3));
  }
}

// Ranks 0 and 1 have one copy of the model, 2 and 3 another.
TEST(ElasticGroup, KeepsARankOfEachPartOfATensor) {
  const std::vector<std::vector<int>> left = {{1, 2}, {0, 3}, {0, 1}, {0, 1}};
  for (int victim = 0; victim < 4; ++victim) {
    ElasticGroup group({.min = 2, .max = 4, .multiple = 2}, 4);
    EXPECT_EQ(group.lost(victim, "", false, kStart).epoch->members, left[victim]) << victim;
  }
}

// A spare knows nothing, so it is the first to wait.
TEST(ElasticGroup, SparesYieldToRanksThatHaveState) {
  ElasticGroup group({.min = 2, .max = 4, .multiple = 2, .stages = 2, .spares = 1}, 4);
  group.joined(4);
  EXPECT_THAT(group.lost(0, "", false, kStart).epoch->members, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(group.lost(3, "", false, kStart).epoch->members, ElementsAre(1, 4));
}

TEST(ElasticGroup, RefusesNumbersThatContradict) {
  EXPECT_THROW(ElasticGroup({.min = 3, .max = 2}, 2), ConfigError);
  EXPECT_THROW(ElasticGroup({.min = 2, .max = 4}, 1), ConfigError);
  EXPECT_THROW(ElasticGroup({.min = 1, .max = 4}, 5), ConfigError);
  EXPECT_THROW(ElasticGroup({.min = 0, .max = 4}, 2), ConfigError);
  EXPECT_THROW(ElasticGroup({.min = 2, .max = 4, .multiple = 2}, 3), ConfigError);
}

}  // namespace
}  // namespace trireme::inline v0::launch
