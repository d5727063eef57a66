#include "trireme/plan/accelerator.h"

#include <gtest/gtest.h>

namespace trireme::plan::accelerator_test {
namespace {

TEST(Accelerator, IsFoundByAWordOfItsName) {
  EXPECT_EQ(find_accelerator("cuda, NVIDIA H200 NVL")->name, "h200");
  EXPECT_EQ(find_accelerator("l4")->name, "l4");
  EXPECT_EQ(find_accelerator("NVIDIA L40S")->name, "l40s");
  EXPECT_EQ(find_accelerator("NVIDIA A100-SXM4-80GB")->name, "a100");
  for (const char* unknown : {"", "cuda", "cpu", "auto", "h2000", "xh200"})
    EXPECT_EQ(find_accelerator(unknown), nullptr) << unknown;
}

TEST(Accelerator, TheNameMaySayHowMuchMemoryThereIs) {
  constexpr std::int64_t kGb = 1'000'000'000;
  EXPECT_EQ(memory_in_names("cuda, NVIDIA A100-SXM4-40GB"), 40 * kGb);
  EXPECT_EQ(memory_in_names("cuda, Tesla V100-SXM2-16GB"), 16 * kGb);
  EXPECT_EQ(memory_in_names("cuda, NVIDIA A100 80GB PCIe"), 80 * kGb);
  EXPECT_EQ(memory_in_names("cuda, NVIDIA H100 80GB HBM3"), 80 * kGb);
  EXPECT_EQ(memory_in_names("cuda, NVIDIA A100-SXM4-40GB, NVIDIA A100-SXM4-80GB"), 40 * kGb);
  EXPECT_EQ(memory_in_names("a card of 16 GB"), 16 * kGb);
  for (const char* none : {"", "cuda, NVIDIA H100 NVL", "GB", "GB200", "NVIDIA GB200 GB", "0GB"})
    EXPECT_EQ(memory_in_names(none), 0) << none;
}

TEST(Accelerator, ThePeakFollowsWhatProductsAreComputedIn) {
  const Accelerator& a100 = *find_accelerator("a100");
  EXPECT_EQ(peak_rate(a100, "bf16", "fp32"), 312e12);
  EXPECT_EQ(peak_rate(a100, "fp16", "fp32"), 312e12);
  EXPECT_EQ(peak_rate(a100, "fp32", "fp32"), 19.5e12);
  EXPECT_EQ(peak_rate(a100, "fp32", "tf32"), 156e12);
  EXPECT_EQ(peak_rate(*find_accelerator("v100"), "fp32", "tf32"), 0) << "it has none";
}

}  // namespace
}  // namespace trireme::plan::accelerator_test
