// Levels of parallel.sync: the plan, the traits and the words of each agree.
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::parallel {
namespace {

TEST(Levels, EveryPlanDividesTheRanks) {
  for (const std::string& level : level_names()) {
    for (const int size : {1, 2, 4, 6, 8}) {
      SCOPED_TRACE(level + " on " + std::to_string(size));
      const SyncPlan plan = plan_sync(level, size, 0, 2 - size % 2);
      EXPECT_EQ(plan.sync, level);
      EXPECT_EQ(plan.assignment.size(), size);
      EXPECT_EQ(size % plan.owners, 0);
      EXPECT_EQ(plan.sharded(), size > 1 && shards_state(level));
      EXPECT_EQ(plan.shards_gradients(), plan.sharded() && goes_in_rounds(level));
      EXPECT_EQ(plan.shards_weights, plan.sharded() && shards_weights(level));
      EXPECT_EQ(plan.owners < size && plan.sharded(), size > 2 && shards_in_groups(level));
      EXPECT_EQ(plan.title.empty(), !shards_state(level));
      EXPECT_EQ(plan.assignment.members, plan.shards_gradients() ? plan.owners : 1);
    }
  }
}

TEST(Levels, ListsOfThemHaveEachOnce) {
  const std::vector<std::string> all = level_names();
  EXPECT_EQ(all.front(), SyncPlan().sync);
  for (const auto such : {&shards_state, &goes_in_rounds, &shards_weights, &shards_in_groups}) {
    EXPECT_FALSE(level_names(such).empty());
    for (const std::string& level : all)
      EXPECT_EQ(std::ranges::count(level_names(such), level), such(level) ? 1 : 0) << level;
    EXPECT_EQ(level_names(such).size() + level_names(such, false).size(), all.size());
  }
  for (const std::string& name : sync_names())
    EXPECT_EQ(std::ranges::count(all, name), is_local(name) || is_served(name) ? 0 : 1) << name;
}

TEST(Levels, HelpSaysWhatEachKeeps) {
  EXPECT_TRUE(
      levels_help().starts_with("plain, all of it; zero1, a part of the optimizer state; "));
  for (const std::string& level : level_names())
    EXPECT_NE(("; " + levels_help()).find("; " + level + ", "), std::string::npos) << level;
}

TEST(Levels, AnotherNameIsRefused) { EXPECT_THROW(plan_sync("zero4", 2, 0, 2), ConfigError); }

}  // namespace
}  // namespace trireme::parallel
