#include "trireme/train/run/run_end.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "trireme/train/config/schema.h"

namespace trireme::train::former_ranks_test {
namespace {

class FormerRanks : public ::testing::Test {
 protected:
  FormerRanks() : path_(::testing::TempDir() + "former-" + std::to_string(getpid())) {
    std::filesystem::create_directory(path_);
    configure({});
  }
  ~FormerRanks() override { std::filesystem::remove_all(path_); }

  void configure(const std::vector<std::string>& values) const {
    folder().write_config(read_config(
        "", [](const char*) { return nullptr; }, values));
  }
  void add(const std::string& event) const {
    std::ofstream(folder().events(), std::ios::app) << event << "\n";
  }
  void resize(const std::string& ranks) const {
    std::ofstream(folder().wanted_ranks()) << ranks << "\n";
  }
  RunFolder folder() const { return RunFolder(path_); }
  std::optional<int> ranks() const { return former_ranks(folder()); }

 private:
  const std::string path_;
};

TEST_F(FormerRanks, AreThoseOfTheLastStart) {
  EXPECT_EQ(ranks(), std::nullopt);
  add(R"({"event":"plan","ranks":2})");
  EXPECT_EQ(ranks(), 2);
  add(R"({"event":"resumed","step":20,"ranks":3})");
  add(R"({"event":"plan","measured_seconds":2.5})");
  EXPECT_EQ(ranks(), 3);
  for (const char* wrong : {"0", "-1", "1e300", "\"4\"", "null", "[4]"})
    add(std::string(R"({"event":"resumed","ranks":)") + wrong + "}");
  EXPECT_EQ(ranks(), 3);
}

TEST_F(FormerRanks, OfAnElasticJobAreWhatItWasAskedToHave) {
  configure({"elastic.min=1", "elastic.max=4"});
  add(R"({"event":"plan","ranks":3})");
  add(R"({"event":"regrouped","step":7,"ranks":2,"cause":"rank 2 is lost"})");
  EXPECT_EQ(ranks(), 3);
  resize("4");
  EXPECT_EQ(ranks(), 4);
  for (const char* refused : {"5", "0", "many", ""}) {
    resize(refused);
    EXPECT_EQ(ranks(), 3) << refused;
  }
}

TEST_F(FormerRanks, AreWholeCopiesOfTheModel) {
  configure({"elastic.min=2", "elastic.max=8", "parallel.pipeline=2", "parallel.sync=hybrid",
             "parallel.shard=2"});
  add(R"({"event":"plan","ranks":4})");
  for (const char* refused : {"6", "3", "2"}) {
    resize(refused);
    EXPECT_EQ(ranks(), 4) << refused;
  }
  resize("8");
  EXPECT_EQ(ranks(), 8);
}

TEST_F(FormerRanks, AreWholeCopiesOfTheModelWithExpertsToo) {
  configure({"elastic.min=4", "elastic.max=8", "parallel.expert=2", "parallel.sync=hybrid",
             "parallel.shard=2"});
  add(R"({"event":"plan","ranks":4})");
  resize("6");
  EXPECT_EQ(ranks(), 4);
  resize("8");
  EXPECT_EQ(ranks(), 8);
}

}  // namespace
}  // namespace trireme::train::former_ranks_test
