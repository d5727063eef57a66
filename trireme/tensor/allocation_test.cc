#include "trireme/tensor/allocation.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/observe/machine.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::function<void()>& run) {
  try {
    run();
  } catch (const ResourceError& error) {
    return std::to_string(error.exit_code()) + ": " + error.what();
  }
  return "nothing was thrown";
}

TEST(Allocation, BeyondTheMachineSaysWhatWasAskedAndWhatIsLeft) {
  tensor::name_allocation_failures();
  tensor::name_allocation_failures();
  EXPECT_THAT(refusal([] { at::empty({std::int64_t{1} << 45}, at::kFloat); }),
              AllOf(HasSubstr("170: no memory for a tensor of 141 TB: "),
                    HasSubstr(" are left on this machine or in its control group"),
                    HasSubstr("trireme plan")));
}

// Memory that other processes use is not left, although the machine has it.
TEST(Allocation, BeyondWhatIsFreeIsRefusedBeforeItIsUsed) {
  tensor::name_allocation_failures();
  const std::int64_t more =
      observe::memory_available() + observe::swap_available() + (std::int64_t{1} << 30);
  EXPECT_THAT(refusal([&] { at::empty({more}, at::kByte); }), HasSubstr("170: no memory for"));
}

// As under `ulimit -v`: LibTorch's own allocator fails.
TEST(Allocation, AnAddressSpaceThatIsFullIsAResource) {
  tensor::name_allocation_failures();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  std::ifstream sizes("/proc/self/statm");
  rlim_t pages = 0;
  ASSERT_TRUE(sizes >> pages);
  rlimit tight = before;
  tight.rlim_cur = pages * 4096 + (64 << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  const std::string said = refusal([] { at::empty({200 << 20}, at::kByte); });
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_THAT(said, HasSubstr("170: no memory for a tensor of 210 MB: "));
}

TEST(Allocation, WhatFitsIsMadeAsBefore) {
  tensor::name_allocation_failures();
  const at::Tensor ones = at::ones({3, 5});
  EXPECT_EQ(ones.sum().item<float>(), 15);
  EXPECT_EQ(ones.clone().sum().item<float>(), 15);
}

}  // namespace
}  // namespace trireme
