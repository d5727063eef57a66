// Small parts of the launcher: core shares, line sources, spawning.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/launch/hosts/cores.h"
#include "trireme/launch/hosts/sources.h"
#include "trireme/launch/hosts/spawn.h"
#include "trireme/launch/launch.h"
#include "trireme/launch/output.h"

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

// As on POWER9: nodes 0 and 8 have cores, node 255 has memory only.
TEST(Cores, NodesMayHaveGapsInTheirNumbersAndNoCores) {
  namespace fs = std::filesystem;
  const std::string folder = ::testing::TempDir() + "/nodes." + std::to_string(getpid());
  const auto write = [&](const std::string& name, const char* text) {
    fs::create_directories(fs::path(folder + name).parent_path());
    std::ofstream(folder + name) << text;
  };
  write("/online", "0,8,255\n");
  write("/node0/cpulist", "0-1\n");
  write("/node8/cpulist", "2-3\n");
  write("/node255/cpulist", "\n");
  const auto nodes = numa_nodes(folder);
  EXPECT_THAT(nodes, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre()));
  EXPECT_THAT(share_cores({0, 1, 2, 3}, 4, 2, Bind::Numa, nodes).pinned,
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  fs::remove_all(folder);
  EXPECT_THAT(share_cores({0, 1}, 2, 2, Bind::Numa, numa_nodes(folder)).pinned,
              ElementsAre(ElementsAre(0, 1), ElementsAre(0, 1)));
}

TEST(Cores, MoreRanksThanCoresArePinnedNowhere) {
  const CoreShare share = share_cores({0, 1}, 2, 3, Bind::Core, {{0, 1}});
  EXPECT_EQ(share.per_rank, 1);
  EXPECT_TRUE(share.overcommitted);
  EXPECT_TRUE(share.pinned.empty());
}

TEST(Output, IsInterruptedThoughAnotherWriterFillsThePipe) {
  const int interrupt = eventfd(1, EFD_CLOEXEC);
  for (int round = 0; round < 200; ++round) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const std::string path = "/proc/self/fd/" + std::to_string(ends[1]);
    const int filling = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    std::atomic<bool> done = false;
    std::thread filler([&] {
      const std::string page(4096, '-');
      while (!done) (void)!write(filling, page.data(), page.size());
    });
    EXPECT_FALSE(write_until(interrupt, ends[1], std::string(1 << 20, '+')));
    done = true;
    filler.join();
    for (const int descriptor : {ends[0], ends[1], filling}) close(descriptor);
  }
  close(interrupt);
}

TEST(Launch, RefusesANumberOfRanksThatIsNone) {
  for (const int ranks : {0, -1})
    EXPECT_THROW(launch({.ranks = ranks, .command = {"true"}}), ConfigError) << ranks;
}

// Standard error may be a pipe that nobody reads.
TEST(Output, TheLinesOfASupervisorDoNotWaitForAReader) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  while (write(ends[1], "full", 4) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);
  EXPECT_FALSE(write_until(-1, ends[1], "no room\n", std::chrono::milliseconds(1)));
  const int before = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  say("rank 1 was lost");
  dup2(before, STDERR_FILENO);
  for (const int descriptor : {ends[0], ends[1], before}) close(descriptor);
}

// A limit on the size of files stands for a full disk.
TEST(Output, ALogFileOnAFullDiskSaysHowManyLinesItLacks) {
  namespace fs = std::filesystem;
  const std::string folder = ::testing::TempDir() + "/logs." + std::to_string(getpid());
  const LaunchOptions options{.log_dir = folder, .on_line = [](int, bool, std::string_view) {}};
  Output output(options);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  void (*const handler)(int) = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ::testing::internal::CaptureStderr();
  setrlimit(RLIMIT_FSIZE, &small);
  for (int line = 0; line < 6; ++line) output.line(0, false, std::string(1000, '-'));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  output.line(0, false, "there is room again");
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("rank-0.log cannot be written"));
  EXPECT_EQ(said.find("rank-0.log"), said.rfind("rank-0.log")) << "said once: " << said;
  std::stringstream text;
  text << std::ifstream(folder + "/rank-0.log").rdbuf();
  EXPECT_TRUE(
      text.str().ends_with("\ntrireme: 2 lines could not be written here\nthere is room again\n"));
  fs::remove_all(folder);
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
  EXPECT_THROW(find_program("/etc"), ConfigError);
  try {
    find_program("/etc/passwd");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("may not execute the file"));
  }
  const std::string path = ::testing::TempDir() + "/no-format." + std::to_string(getpid());
  std::ofstream(path) << "not a program";
  chmod(path.c_str(), 0700);
  EXPECT_THROW(spawn({.command = {path}, .environment = {}}), ConfigError);
  std::remove(path.c_str());
  try {
    spawn({.command = {"true", std::string(1 << 20, 'x')}, .environment = {}});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("shorter"));
  }
}

}  // namespace
}  // namespace trireme::launch
