#include "trireme/plan/communication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kMiB = 1 << 20;

plan::Communication time_of(const plan::Tuning* tuning, int ranks, std::size_t bytes,
                            const std::string& algorithm = "auto",
                            const std::string& transport = "tcp") {
  return plan::all_reduce_of_buckets(tuning, "/t.toml", transport, algorithm, ranks, bytes,
                                     4 * kMiB);
}

plan::Tuning table() {
  plan::Tuning tuning;
  tuning.machine = "a test";
  tuning.links["tcp"] = {1e-5, 1e-9, 1e-10};
  tuning.add({"all_reduce", "ring", "tcp", 2, 4 * kMiB, 3e-3});
  tuning.add({"all_reduce", "tree", "tcp", 2, 4 * kMiB, 2e-3});
  tuning.add({"all_reduce", "tree", "tcp", 8, 4 * kMiB, 1e-9});
  tuning.add({"broadcast", "tree", "tcp", 2, 4 * kMiB, 1e-9});
  return tuning;
}

TEST(Communication, TakesWhatWasMeasuredOfThisRankCount) {
  const plan::Tuning tuning = table();
  const auto fastest = time_of(&tuning, 2, 16 * kMiB);
  EXPECT_DOUBLE_EQ(fastest.seconds, 4 * 2e-3);  // four buckets, by the tree
  EXPECT_THAT(fastest.source, AllOf(HasSubstr("tree as measured"), HasSubstr("/t.toml (a test)")));
  EXPECT_DOUBLE_EQ(time_of(&tuning, 2, 16 * kMiB, "ring").seconds, 4 * 3e-3);
}

TEST(Communication, TakesTheMeasuredLinkForOtherRankCounts) {
  const plan::Tuning tuning = table();
  const auto cost = time_of(&tuning, 4, 8 * kMiB);
  // Two buckets; 2 log2(4) messages; 3/4 of the bytes are sent twice and added once.
  EXPECT_DOUBLE_EQ(cost.seconds, 2 * (4 * 1e-5 + 0.75 * 4 * kMiB * (2 * 1e-9 + 1e-10)));
  EXPECT_THAT(cost.source, AllOf(HasSubstr("alpha 10 us, beta 1 ns/B, gamma 0.1 ns/B"),
                                 HasSubstr("as measured over tcp"), HasSubstr("/t.toml")));
}

TEST(Communication, SaysThatItsFiguresAreTypicalOnes) {
  const plan::Tuning tuning = table();
  for (const plan::Tuning* one : {static_cast<const plan::Tuning*>(nullptr), &tuning}) {
    const auto cost = time_of(one, 2, 4 * kMiB, "auto", "auto");  // shm: not in the table
    const plan::LinkCost link = plan::typical_link("shm");
    EXPECT_DOUBLE_EQ(cost.seconds, 2 * link.alpha + 0.5 * 4 * kMiB * (2 * link.beta + link.gamma));
    EXPECT_THAT(cost.source,
                AllOf(HasSubstr("typical of shm"), HasSubstr("bench comm --tune --ranks 2"),
                      Not(HasSubstr("as measured"))));
  }
  EXPECT_EQ(time_of(nullptr, 1, kMiB).seconds, 0);
}

TEST(Communication, ReadsTheFileThatTheTunerWrites) {
  const std::string path = testing::TempDir() + "/communication_tuning.toml";
  setenv("TRIREME_TUNING", path.c_str(), 1);
  std::filesystem::remove(path);
  EXPECT_FALSE(plan::read_tuning());
  std::ofstream(path) << table().to_toml();
  ASSERT_TRUE(plan::read_tuning());
  EXPECT_DOUBLE_EQ(plan::read_tuning()->links.at("tcp").beta, 1e-9);
  setenv("TRIREME_TUNING", (path + "/below").c_str(), 1);
  EXPECT_FALSE(plan::read_tuning());
  setenv("TRIREME_TUNING", testing::TempDir().c_str(), 1);  // is there, and no file
  EXPECT_THROW(plan::read_tuning(), ConfigError);
  setenv("TRIREME_TUNING", path.c_str(), 1);
  std::ofstream(path) << "version = 99\n";
  EXPECT_THROW(plan::read_tuning(), ConfigError);
  unsetenv("TRIREME_TUNING");
}

}  // namespace
}  // namespace trireme
