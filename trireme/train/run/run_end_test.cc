#include "trireme/train/run/run_end.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/storage/folder.h"
#include "trireme/storage/forwarding_file_system_test.h"
#include "trireme/train/config/schema.h"

namespace trireme::train::run_end_test {
namespace {

class RunEndTest : public ::testing::Test {
 protected:
  RunEndTest() : folder_(::testing::TempDir() + "end-" + std::to_string(getpid())) {
    std::filesystem::create_directory(folder_.path());
  }
  ~RunEndTest() override { std::filesystem::remove_all(folder_.path()); }

  void configure(const std::vector<std::string>& values) const {
    folder_.write_config(read_config(
        "", [](const char*) { return nullptr; }, values));
  }
  void save(std::int64_t step) const {
    const storage::FileWriter file = [](const auto& sink) {
      sink(std::as_bytes(std::span(std::string_view("weights"))));
    };
    storage::CheckpointFolder(storage::local_file_system(), folder_.checkpoint())
        .write({.step = step}, {{storage::kModelFile, file}, {storage::kStateFile, file}}, 3);
  }

  const RunFolder folder_;
};

TEST_F(RunEndTest, IsTheCheckpointOfTheLastStep) {
  EXPECT_FALSE(run_end(folder_)) << "there is no run";
  configure({"train.steps=6", "timeout=2.5"});
  EXPECT_FALSE(run_end(folder_));
  save(4);
  EXPECT_FALSE(run_end(folder_));
  save(6);
  const std::optional<RunEnd> end = run_end(folder_);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->step, 6);
  EXPECT_FALSE(end->early);
  EXPECT_EQ(end->timeout, std::chrono::milliseconds(2500));
  configure({"train.steps=8"});
  EXPECT_FALSE(run_end(folder_)) << "it goes on";
}

TEST_F(RunEndTest, MayBeEarly) {
  configure({"train.steps=600"});
  save(6);
  std::ofstream(folder_.events()) << R"({"event":"early_stop","step":6})"
                                  << "\n";
  const std::optional<RunEnd> end = run_end(folder_);
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->early);
  save(8);
  EXPECT_FALSE(run_end(folder_));
}

// As of a bucket that is away for a while.
TEST_F(RunEndTest, AStorageThatIsAwaySaysNothing) {
  configure({"train.steps=6", "timeout=2.5"});
  save(6);
  const auto storage = std::make_shared<storage::AskedFileSystem>();
  storage->asked = [] { throw ResourceError("the storage is away", {.operation = "list"}); };
  const std::function<bool()> ended = stays_ended(RunFolder(folder_.path(), storage));
  EXPECT_FALSE(ended());
}

}  // namespace
}  // namespace trireme::train::run_end_test
