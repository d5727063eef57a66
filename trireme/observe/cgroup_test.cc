#include "trireme/observe/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <string>

namespace trireme::observe {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
constexpr const char* kNoneInVersion1 = "9223372036854771712\n";

// Builds the proc and sys files of a machine.
class CgroupTest : public ::testing::Test {
 protected:
  ~CgroupTest() override { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    const auto file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  Cgroup cgroup() const { return Cgroup(root_); }

 private:
  const std::filesystem::path root_ =
      ::testing::TempDir() + "trireme-cgroup-" + std::to_string(getpid());
};

TEST_F(CgroupTest, NothingIsNoLimit) {
  EXPECT_EQ(cgroup().cores(), 0);
  EXPECT_EQ(cgroup().memory_limit(), kNone);
  EXPECT_EQ(cgroup().memory_left(), kNone);
}

// A batch job: the limit is on the group around the process's own, two folders below the root.
TEST_F(CgroupTest, TheGroupsOwnAndThoseAroundItCountInVersion2) {
  put("proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  put("sys/fs/cgroup/slurm/job_7/memory.max", "1000000\n");
  put("sys/fs/cgroup/slurm/job_7/memory.current", "700000\n");
  put("sys/fs/cgroup/slurm/job_7/memory.stat", "anon 500000\nactive_file 50000\ninactive_file 9\n");
  put("sys/fs/cgroup/slurm/job_7/cpu.max", "150000 100000\n");
  put("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
  put("sys/fs/cgroup/slurm/job_7/step_0/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup().memory_limit(), 1000000);
  EXPECT_EQ(cgroup().memory_left(), 350009);
  EXPECT_EQ(cgroup().cores(), 1.5);
}

TEST_F(CgroupTest, Version1HasAFolderForEachController) {
  put("proc/self/cgroup", "9:name=systemd:/\n4:memory:/job\n3:cpu,cpuacct:/time\n0::/\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", kNoneInVersion1);
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "12345678\n");
  put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "4096000\n");
  put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "4100000\n");
  put("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 104000\n");
  put("sys/fs/cgroup/memory/time/memory.limit_in_bytes", "1000\n");  // of other processes
  put("sys/fs/cgroup/cpu/time/cpu.cfs_quota_us", "50000\n");
  put("sys/fs/cgroup/cpu/time/cpu.cfs_period_us", "100000\n");
  put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "10000\n");  // of other processes
  put("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cgroup().memory_limit(), 4096000);
  EXPECT_EQ(cgroup().memory_left(), 100000);
  EXPECT_EQ(cgroup().cores(), 0.5);
}

// In a container /proc may name the group as the host sees it.
TEST_F(CgroupTest, TheMountsRootCountsWhereTheFolderIsNotThere) {
  put("proc/self/cgroup", "0::/docker/1234\n");
  put("sys/fs/cgroup/memory.max", "2000\n");
  put("sys/fs/cgroup/memory.current", "5000\n");
  EXPECT_EQ(cgroup().memory_limit(), 2000);
  EXPECT_EQ(cgroup().memory_left(), 0);
}

}  // namespace
}  // namespace trireme::observe
