#include "trireme/train/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "trireme/base/error.h"
#include "trireme/train/config/worker_spec.h"

namespace trireme::train::device_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::string& wanted, const Devices& devices, int ranks,
                    int ranks_per_device = 1) {
  try {
    choose_device(wanted, devices, ranks, ranks_per_device);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Device, CudaNeedsALibTorchForIt) {
  for (const int gpus : {0, 1, 8})
    EXPECT_THAT(refusal("cuda", {.kind = "cuda", .count = gpus, .in_build = false}, 1),
                AllOf(HasSubstr("computes on the CPU alone"), HasSubstr("make build TORCH=cuda")));
  EXPECT_THAT(refusal("cuda", {}, 1), HasSubstr("make build TORCH=cuda"));
  EXPECT_THAT(refusal("xpu", {}, 1), HasSubstr("a LibTorch that does"));
  EXPECT_THAT(refusal("h200", {}, 1), HasSubstr("no such device"));
  EXPECT_THAT(refusal("cuda:1", {.kind = "cuda", .count = 2}, 1),
              AllOf(HasSubstr("no such device"), HasSubstr("auto, cpu or cuda"),
                    HasSubstr("by its local rank")));
}

TEST(Device, OneWithoutFp64IsRefused) {
  for (const Devices& devices : {Devices{}, Devices{.kind = "mps", .count = 1}})
    EXPECT_THAT(refusal("mps", devices, 1),
                AllOf(HasSubstr("a step sums in fp64"), HasSubstr("\"cpu\" trains without")));
  const DeviceChoice choice = choose_device("auto", {.kind = "mps", .count = 1}, 1, 1);
  EXPECT_EQ(choice.kind, "cpu");
  EXPECT_EQ(choice.note, "1 mps device lies idle: a step sums in fp64, which it does not have");
}

TEST(Device, OneThatNoRankTakesIsSpare) {
  const Devices four{.kind = "cuda", .count = 4};
  for (const char* wanted : {"auto", "cuda"}) {
    EXPECT_EQ(choose_device(wanted, four, 3, 1).spare, 3);
    EXPECT_EQ(choose_device(wanted, four, 3, 2).spare, 2);
    EXPECT_EQ(choose_device(wanted, four, 4, 1).spare, -1);
  }
  EXPECT_EQ(choose_device("auto", four, 5, 1).spare, -1);  // they train on the CPU
  EXPECT_EQ(choose_device("cpu", four, 1, 1).spare, -1);
}

TEST(Device, ASpareOneIsTheStartersHosts) {
  const WorkerSpec spec{.folder = "run", .device = "cuda", .spare_device = 2};
  EXPECT_EQ(WorkerSpec::from_text(spec.to_text()).spare_device, 2);
  EXPECT_EQ(spec.elsewhere().spare_device, -1);
}

TEST(Device, MoreRanksThanDevicesAreRefusedWithTheArithmetic) {
  const Devices two{.kind = "cuda", .count = 2};
  EXPECT_THAT(refusal("cuda", two, 3),
              AllOf(HasSubstr("3 ranks need 3 GPUs, with 1 rank on each, but this host has 2"),
                    HasSubstr("--ranks 2 or fewer")));
  EXPECT_THAT(refusal("cuda", {.kind = "cuda", .count = 0}, 1),
              AllOf(HasSubstr("1 rank needs 1 GPU, with 1 rank on each, but this host has 0"),
                    HasSubstr("nvidia-smi")));
  EXPECT_EQ(refusal("cuda", two, 2), "accepted");
  EXPECT_EQ(refusal("cuda", two, 6, 3), "accepted");
  EXPECT_THAT(refusal("cuda", two, 7, 3),
              AllOf(HasSubstr("7 ranks need 3 GPUs, with 3 ranks on each, but this host has 2"),
                    HasSubstr("--ranks 6 or fewer")));
}

// A driver that is missing, or too old for this LibTorch.
TEST(Device, WhyThereIsNoneIsSaid) {
  const Devices none{.kind = "cuda", .count = 0, .why_none = "The NVIDIA driver is too old"};
  EXPECT_THAT(refusal("cuda", none, 1),
              AllOf(HasSubstr("\"cuda\": The NVIDIA driver is too old"), HasSubstr("nvidia-smi")));
  EXPECT_THAT(describe_auto(none), AllOf(HasSubstr("(The NVIDIA driver is too old; look at"),
                                         HasSubstr("CUDA_VISIBLE_DEVICES")));
  EXPECT_EQ(choose_device("auto", none, 1, 1).kind, "cpu");
  try {
    take_device("cuda", 0, 1);  // which this LibTorch does not compute on
    ADD_FAILURE() << "it was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cuda:0 cannot be used: "));
  }
}

TEST(Device, AutoTakesDevicesForEveryRankAndElseSaysWhatLiesIdle) {
  const auto chosen = [](const Devices& devices, int ranks, const char* wanted = "auto") {
    const DeviceChoice choice = choose_device(wanted, devices, ranks, 1);
    return choice.kind + "; " + choice.note;
  };
  EXPECT_EQ(chosen({}, 2), "cpu; ");
  EXPECT_EQ(
      chosen({.kind = "cuda", .count = 1, .in_build = false}, 2),
      "cpu; 1 GPU lies idle: this LibTorch computes on the CPU alone (`make build TORCH=cuda` "
      "gets LibTorch's CUDA build)");
  const Devices four{.kind = "cuda", .count = 4};
  EXPECT_EQ(chosen(four, 2), "cuda; 2 ranks train on 2 GPUs of 4");
  EXPECT_EQ(chosen({.kind = "xpu", .count = 1}, 1), "xpu; 1 rank trains on 1 xpu device");
  EXPECT_EQ(chosen(four, 5),
            "cpu; 4 GPUs lie idle: there is none for each of 5 ranks (train.ranks_per_device lets "
            "ranks share one)");
  EXPECT_EQ(chosen(four, 2, "cpu"), "cpu; ") << "it was asked for";
}

TEST(Device, DescribesWhatAutoMeansHere) {
  EXPECT_EQ(describe_auto({}), "cpu: there is no device");
  EXPECT_THAT(describe_auto({.kind = "cuda", .count = 0}),
              AllOf(HasSubstr("cpu: this LibTorch computes on cuda, and sees no device"),
                    HasSubstr("nvidia-smi")));
  EXPECT_THAT(describe_auto({.kind = "cuda", .count = 2, .in_build = false}),
              AllOf(HasSubstr("cpu: 2 GPUs lie idle"), HasSubstr("make build TORCH=cuda")));
  EXPECT_EQ(describe_auto({.kind = "xpu", .count = 1}),
            "xpu for up to 1 rank of this host, cpu for more (train.ranks_per_device lets ranks "
            "share a device)");
}

TEST(Device, ProductsAndTransportsMustSuitIt) {
  EXPECT_NO_THROW(check_products("bf16", "cpu"));
  EXPECT_NO_THROW(check_products("tf32", "cuda"));
  EXPECT_NO_THROW(check_products("fp32", "xpu"));
  EXPECT_THROW(check_products("tf32", "cpu"), ConfigError);
  EXPECT_THROW(check_products("bf16", "cuda"), ConfigError);
  EXPECT_NO_THROW(check_graphs(true, "cuda"));
  EXPECT_NO_THROW(check_graphs(false, "cpu"));
  EXPECT_THROW(check_graphs(true, "cpu"), ConfigError);
  EXPECT_NO_THROW(check_transport("nccl", "cuda", 1));
  EXPECT_NO_THROW(check_transport("shm", "cuda", 2));
  EXPECT_THROW(check_transport("nccl", "cuda", 2), ConfigError);
  EXPECT_THROW(check_transport("nccl", "cpu", 1), ConfigError);
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
  EXPECT_EQ(count("0,-1,1"), 1);
  EXPECT_EQ(count_gpus(folder + "/none", [](const char*) { return nullptr; }), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trireme::train::device_test
