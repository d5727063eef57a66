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
