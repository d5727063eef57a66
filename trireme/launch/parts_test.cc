// Small parts of the launcher: core shares, line sources, spawning.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "trireme/base/error.h"
#include "trireme/launch/cores.h"
#include "trireme/launch/sources.h"
#include "trireme/launch/spawn.h"

namespace trireme::launch {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Cores, AreDisjointAndHonourTheQuota) {
  const std::vector<std::vector<int>> nodes{{0, 1, 2, 3}, {4, 5, 6, 7}};
  const std::vector<int> cores{0, 1, 2, 3, 4, 5, 6, 7};
  CoreShare share = share_cores(cores, 8, 3, Bind::Core, nodes);
  EXPECT_EQ(share.per_rank, 2);
  EXPECT_THAT(share.pinned, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5)));
  share = share_cores(cores, 4, 2, Bind::Core, nodes);
  EXPECT_THAT(share.pinned, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  share = share_cores(cores, 8, 2, Bind::Numa, nodes);
  EXPECT_THAT(share.pinned, ElementsAre(nodes[0], nodes[1]));
  EXPECT_TRUE(share_cores(cores, 8, 2, Bind::None, nodes).pinned.empty());
}

TEST(Cores, MoreRanksThanCoresArePinnedNowhere) {
  const CoreShare share = share_cores({0, 1}, 2, 3, Bind::Core, {{0, 1}});
  EXPECT_EQ(share.per_rank, 1);
  EXPECT_TRUE(share.overcommitted);
  EXPECT_TRUE(share.pinned.empty());
}

TEST(LineSource, GivesWholeLinesAndTheRestAtTheEnd) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  std::vector<std::string> lines;
  LineSource source(ends[0], [&](std::string_view line) { lines.emplace_back(line); });
  EXPECT_FALSE(source.poll());
  ASSERT_EQ(write(ends[1], "one\ntw", 6), 6);
  EXPECT_TRUE(source.poll());
  EXPECT_THAT(lines, ElementsAre("one"));
  ASSERT_EQ(write(ends[1], "o\n\nrest", 7), 7);
  close(ends[1]);
  EXPECT_TRUE(source.poll());
  EXPECT_THAT(lines, ElementsAre("one", "two", "", "rest"));
  EXPECT_TRUE(source.finished());
}

TEST(Spawn, SaysWhatItCannotRun) {
  EXPECT_EQ(find_program("sh").substr(0, 1), "/");
  EXPECT_THROW(find_program("no-such-program-anywhere"), ConfigError);
  EXPECT_THROW(find_program("/etc/passwd"), ConfigError);
  const std::string path = ::testing::TempDir() + "/no-format." + std::to_string(getpid());
  std::ofstream(path) << "not a program";
  chmod(path.c_str(), 0700);
  EXPECT_THROW(spawn({.command = {path}, .environment = {}}), ConfigError);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace trireme::launch
