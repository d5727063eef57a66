#include "trireme/train/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "trireme/base/error.h"

namespace trireme::train::device_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const Devices& devices, int ranks) {
  try {
    choose_device("cuda", devices, ranks);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Device, CudaNeedsALibTorchForIt) {
  for (const int gpus : {0, 1, 8})
    EXPECT_THAT(refusal({.gpus = gpus, .cuda_build = false}, 1),
                AllOf(HasSubstr("computes on the CPU alone"), HasSubstr("make build TORCH=cuda")));
}

TEST(Device, MoreRanksThanGpusAreRefusedWithTheArithmetic) {
  EXPECT_THAT(
      refusal({.gpus = 2, .cuda_build = true}, 3),
      AllOf(HasSubstr("3 ranks for 2 GPUs on this host (3 > 2)"), HasSubstr("--ranks 2 or fewer")));
  EXPECT_THAT(refusal({.gpus = 0, .cuda_build = true}, 1),
              AllOf(HasSubstr("1 rank for 0 GPUs"), HasSubstr("nvidia-smi")));
  EXPECT_THAT(refusal({.gpus = 2, .cuda_build = true}, 2), HasSubstr("not in this release"));
}

TEST(Device, AutoSaysWhatLiesIdle) {
  EXPECT_EQ(choose_device("auto", {}, 2), "");
  EXPECT_EQ(
      choose_device("auto", {.gpus = 1}, 2),
      "1 GPU lies idle: this LibTorch computes on the CPU alone (`make build TORCH=cuda` gets "
      "LibTorch's CUDA build)");
  EXPECT_THAT(choose_device("auto", {.gpus = 4, .cuda_build = true}, 2),
              HasSubstr("4 GPUs lie idle: training on GPUs is not in this release"));
  EXPECT_EQ(choose_device("cpu", {.gpus = 4}, 2), "") << "it was asked for";
}

TEST(Device, CountsWhatTheDriverShowsAndTheEnvironmentAllows) {
  const std::string folder = ::testing::TempDir() + "trireme-gpus-" + std::to_string(getpid());
  for (const char* gpu : {"/0000:01:00.0", "/0000:02:00.0", "/0000:03:00.0"})
    std::filesystem::create_directories(folder + gpu);
  const auto count = [&](const char* visible) {
    return count_gpus(folder, [visible](const char*) { return visible; });
  };
  EXPECT_EQ(count(nullptr), 3);
  EXPECT_EQ(count("1"), 1);
  EXPECT_EQ(count("0,2"), 2);
  EXPECT_EQ(count("0,1,2,3,4"), 3);
  EXPECT_EQ(count(""), 0);
  EXPECT_EQ(count("-1"), 0);
  EXPECT_EQ(count_gpus(folder + "/none", [](const char*) { return nullptr; }), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trireme::train::device_test
