#include "trireme/cli/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

TEST(Files, LookingWhetherALinkCanBeWrittenLeavesItAlone) {
  const fs::path folder =
      fs::path(::testing::TempDir()) / ("trireme-files-" + std::to_string(getpid()));
  fs::create_directories(folder);
  fs::create_symlink("target", folder / "link");
  EXPECT_TRUE(can_write((folder / "link").string()));
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_FALSE(fs::exists(folder / "target"));
  EXPECT_FALSE(can_write((folder / "none" / "file").string()));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace trireme::cli
