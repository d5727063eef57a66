#include "trireme/cli/programs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// A PATH of folders with programs that print a given text.
class Programs : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("trireme-programs-" + std::to_string(::getpid()));
    fs::create_directories(root_ / "one");
    fs::create_directories(root_ / "two");
    path_ = std::getenv("PATH");
    const std::string path = (root_ / "one").string() + ":" + (root_ / "two").string() + ":";
    setenv("PATH", (path + (root_ / "none").string()).c_str(), 1);
  }
  void TearDown() override {
    setenv("PATH", path_.c_str(), 1);
    fs::remove_all(root_);
  }
  void program(const std::string& name, const std::string& says) {
    std::ofstream(root_ / name) << "#!/bin/sh\n/bin/cat <<'END'\n" << says << "\nEND\n";
    fs::permissions(root_ / name, fs::perms::owner_all);
  }
  fs::path root_;
  std::string path_;
};

TEST_F(Programs, EveryMpiIsNamedOnce) {
  program("one/orterun", "mpirun (Open MPI) 4.1.4\n\nReport bugs to somebody");
  fs::create_symlink("orterun", root_ / "one/mpirun");
  fs::create_symlink("orterun", root_ / "one/mpirun.openmpi");
  fs::create_symlink("orterun", root_ / "one/mpiexec");
  program("two/mpiexec.hydra", "HYDRA build details:\n    Version:           4.0.2\n    CC: gcc");
  fs::create_symlink("mpiexec.hydra", root_ / "two/mpirun.mpich");
  program("two/mpirunner", "none of them");
  program("two/mpirun", "Intel(R) MPI Library for Linux* OS, Version 2021.9");
  fs::permissions(root_ / "two/mpirun", fs::perms::owner_read);  // cannot be started
  const std::vector<MpiProgram> found = find_mpis();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].path, (root_ / "one/mpirun").string());
  EXPECT_EQ(found[0].version, "mpirun (Open MPI) 4.1.4");
  EXPECT_EQ(found[1].path, (root_ / "two/mpirun.mpich").string());
  EXPECT_EQ(found[1].version, "MPICH (Hydra) 4.0.2");
}

TEST_F(Programs, NoneIsNoError) {
  EXPECT_TRUE(find_mpis().empty());
  EXPECT_EQ(program_on_path("mpirun"), "");
  EXPECT_EQ(version_output(""), "");
  EXPECT_EQ(version_output((root_ / "missing").string()), "");
}

}  // namespace
}  // namespace trireme::cli
