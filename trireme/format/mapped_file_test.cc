#include "trireme/format/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"

namespace trireme::format {
namespace {

class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(::testing::TempDir()) / ("mapped_file_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(MappedFileTest, ShowsTheBytes) {
  std::ofstream(folder_ / "a") << "trireme";
  MappedFile file((folder_ / "a").string());
  EXPECT_EQ(file.text(), "trireme");
  MappedFile moved(std::move(file));
  EXPECT_EQ(moved.text(), "trireme");
  EXPECT_TRUE(file.text().empty());
}

TEST_F(MappedFileTest, AnEmptyFileIsEmpty) {
  std::ofstream(folder_ / "empty");
  EXPECT_EQ(MappedFile((folder_ / "empty").string()).bytes().size(), 0u);
}

TEST_F(MappedFileTest, RefusesWhatIsNoFile) {
  EXPECT_THROW(MappedFile((folder_ / "missing").string()), ConfigError);
  EXPECT_THROW(MappedFile(folder_.string()), ConfigError);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(MappedFile((folder_ / "pipe").string()), ConfigError);  // and does not hang
}

}  // namespace
}  // namespace trireme::format
