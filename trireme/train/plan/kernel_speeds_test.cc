// Times of kernels: the file of the cache, and what is done without it.
#include "trireme/train/plan/kernel_speeds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "trireme/tensor/determinism.h"

namespace trireme::kernel_speeds_test {
namespace {

namespace fs = std::filesystem;
using models::Kernel;
using train::KernelSpeeds;

const Kernel kSmall{"norm", {10, 100}, 2}, kLarge{"linear", {4096, 1024, 2048}, 3};

class KernelSpeedsTest : public ::testing::Test {
 protected:
  KernelSpeedsTest()
      : folder_(fs::temp_directory_path() / ("speeds." + std::to_string(getpid()))) {}
  ~KernelSpeedsTest() override { fs::remove_all(folder_); }

  // A millisecond each; counts what was measured.
  KernelSpeeds speeds(const std::string& machine = "a machine") {
    return {folder_.string(), machine,
            [this](const std::vector<Kernel>& samples) {
              measured_ += samples.size();
              return train::KernelTimes{std::vector<double>(samples.size(), 1e-3), computing_};
            },
            [this] { ++notices_; }};
  }
  std::string file() const { return fs::directory_iterator(folder_)->path(); }
  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(file()).rdbuf();
    return out.str();
  }

  const fs::path folder_;
  std::size_t measured_ = 0, notices_ = 0;
  double computing_ = 1;
};

TEST_F(KernelSpeedsTest, AreMeasuredOnceAndKept) {
  KernelSpeeds first = speeds();
  // An eighth of the large one is measured: 1024 x 1024 x 1024.
  EXPECT_DOUBLE_EQ(first.seconds({kSmall, kLarge}), 2e-3 + 3 * 8e-3);
  EXPECT_DOUBLE_EQ(first.seconds({kSmall}), 2e-3);
  first.save();
  EXPECT_EQ(measured_, 2u);
  EXPECT_EQ(text(), "a machine\n0.001 linear 1024 1024 1024\n0.001 norm 10 100\n");
  KernelSpeeds second = speeds();
  EXPECT_DOUBLE_EQ(second.seconds({kLarge}), 3 * 8e-3);
  EXPECT_THAT(second.source(), ::testing::HasSubstr(file()));
  EXPECT_EQ(measured_, 2u);
  EXPECT_EQ(notices_, 1u);
  second.seconds({kLarge, {"add", {10, 100}}});
  second.save();
  EXPECT_EQ(measured_, 3u) << "only what was missing";
  EXPECT_THAT(text(), ::testing::StartsWith("a machine\n0.001 add 10 100\n0.001 linear"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "no unfinished file";
}

TEST_F(KernelSpeedsTest, OfABusyMachineAreNotBelievedLater) {
  computing_ = 0.6;
  KernelSpeeds busy = speeds();
  EXPECT_DOUBLE_EQ(busy.seconds({kSmall}), 2e-3);
  busy.save();
  KernelSpeeds next = speeds();
  next.seconds({kSmall});
  EXPECT_EQ(notices_, 2u);
  EXPECT_THAT(busy.source(), ::testing::HasSubstr("other programs took 40 % of the time"));
}

TEST_F(KernelSpeedsTest, OfABusyMachineDoNotReplaceBetterOnes) {
  KernelSpeeds quiet = speeds();
  quiet.seconds({kSmall});
  quiet.save();
  const std::string kept = text();
  computing_ = 0.6;
  KernelSpeeds busy = speeds();
  busy.seconds({kSmall, kLarge});
  busy.save();
  EXPECT_EQ(text(), kept);
}

TEST_F(KernelSpeedsTest, OfAnotherMachineAreNotTaken) {
  KernelSpeeds one = speeds();
  one.seconds({kSmall});
  one.save();
  const std::string own = file();
  KernelSpeeds other = speeds("another");
  other.seconds({kSmall});
  EXPECT_EQ(measured_, 2u);
  other.save();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2);
  std::ofstream(own) << "another\n9 norm 10 100\n";  // under the first one's name
  EXPECT_DOUBLE_EQ(speeds().seconds({kSmall}), 2e-3);
}

TEST_F(KernelSpeedsTest, AWrongFileIsMeasuredAgain) {
  KernelSpeeds one = speeds();
  one.seconds({kSmall});
  one.save();
  for (const char* wrong : {"", "a machine\n0.1 norm 10 100\n-1 add 10 100\n", "a machine\n0.1\n",
                            "a machine\nnan norm 10 100\n", "a machine\n0.1 norm 10 100\n\n",
                            "a machin", "\x7f\x45\x4c\x46"}) {
    std::ofstream(file()) << wrong;
    EXPECT_DOUBLE_EQ(speeds().seconds({kSmall}), 2e-3) << wrong;
  }
}

TEST_F(KernelSpeedsTest, NeedNoFolder) {
  std::ofstream(folder_) << "a file in its place";
  KernelSpeeds none = speeds();
  EXPECT_DOUBLE_EQ(none.seconds({kSmall}), 2e-3);
  none.save();
  EXPECT_TRUE(fs::is_regular_file(folder_));
}

TEST(CacheFolder, IsTheUsers) {
  setenv("XDG_CACHE_HOME", "/var/cache/me", 1);
  EXPECT_EQ(train::cache_folder(), "/var/cache/me/trireme");
  setenv("XDG_CACHE_HOME", "relative", 1);  // not valid, says the XDG specification
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(train::cache_folder(), "/home/me/.cache/trireme");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  EXPECT_EQ(train::cache_folder(), "");
}

// Every kernel of the models runs, in every type.
TEST(KernelRuns, OfAllKindsTakeTime) {
  const std::vector<Kernel> all = {{"linear", {4, 8, 8}},
                                   {"linear bias gelu", {4, 8, 8}},
                                   {"attention", {1, 4, 2, 4}},
                                   {"causal attention", {1, 4, 2, 4}},
                                   {"convolution", {1, 2, 2, 3, 2, 4}},
                                   {"norm", {4, 8}},
                                   {"add", {4, 8}},
                                   {"gated", {4, 8}},
                                   {"loss", {4, 8}},
                                   {"memory", {1000}}};
  tensor::set_up_process({});
  for (const char* precision : {"fp32", "bf16", "fp16", "fp64"})
    EXPECT_THAT(train::run_kernels(all, precision, 2).seconds, ::testing::Each(::testing::Gt(0)));
}

}  // namespace
}  // namespace trireme::kernel_speeds_test
