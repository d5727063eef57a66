#include "trireme/train/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/train/schema.h"
#include "trireme/train/worker_spec.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using train::RunFolder;

// Every test works in an empty folder of its own.
class RunFolderTest : public ::testing::Test {
 protected:
  RunFolderTest() : before_(fs::current_path()) {
    std::string pattern = ::testing::TempDir() + "runs-XXXXXX";
    place_ = mkdtemp(pattern.data());
    fs::current_path(place_);
  }
  ~RunFolderTest() override {
    fs::current_path(before_);
    fs::remove_all(place_);
  }

 private:
  fs::path before_, place_;
};

TEST_F(RunFolderTest, TakesTheNextFreeName) {
  EXPECT_EQ(RunFolder::claim("", "gpt").path(), "runs/gpt");
  EXPECT_EQ(RunFolder::claim("", "gpt").path(), "runs/gpt-2");
  EXPECT_EQ(RunFolder::claim("", "gpt").path(), "runs/gpt-3");
}

TEST_F(RunFolderTest, NeverTakesAFolderThatHoldsARun) {
  RunFolder::claim("a/b", "x")
      .write_config(train::read_config("", [](const char*) { return nullptr; }, {}));
  try {
    RunFolder::claim("a/b", "x");
    FAIL() << "the folder of a run was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--resume a/b"));
  }
  std::ofstream("file") << "x";
  EXPECT_THROW(RunFolder::claim("file", "x"), ConfigError);
  fs::create_directory("full");
  std::ofstream("full/file") << "x";
  EXPECT_THROW(RunFolder::claim("full", "x"), ConfigError);
  fs::create_directory("empty");
  EXPECT_EQ(RunFolder::claim("empty", "x").path(), "empty");
}

TEST_F(RunFolderTest, ConfigCanBeReadBack) {
  const RunFolder folder = RunFolder::claim("", "gpt");
  const auto none = [](const char*) { return nullptr; };
  const config::Config config = train::read_config("", none, {"train.steps=7"});
  folder.write_config(config);
  const config::Config again = train::read_config(folder.config(), none, {});
  for (const config::Key& key : config.schema().keys()) {
    EXPECT_EQ(config.value(key.name), again.value(key.name)) << key.name;
  }
  EXPECT_THROW(RunFolder::existing("nowhere"), ConfigError);
  EXPECT_EQ(RunFolder::existing("runs/gpt/").path(), "runs/gpt");
}

TEST(WorkerSpec, CrossesAsText) {
  const train::WorkerSpec spec{.folder = "runs/with space",
                               .trace = "a trace.json",
                               .resume = true,
                               .terminal = true,
                               .predicted_bytes = 12345,
                               .corpus = 7};
  const train::WorkerSpec again = train::WorkerSpec::from_text(spec.to_text());
  EXPECT_EQ(again.folder, spec.folder);
  EXPECT_EQ(again.resume, true);
  EXPECT_EQ(again.json, false);
  EXPECT_EQ(again.terminal, true);
  EXPECT_EQ(again.predicted_bytes, 12345);
  EXPECT_EQ(again.trace, spec.trace);
  EXPECT_EQ(again.corpus, 7);
}

}  // namespace
}  // namespace trireme
