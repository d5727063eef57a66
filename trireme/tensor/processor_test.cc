#include "trireme/tensor/processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "trireme/kernel/isa.h"

namespace trireme::tensor {
namespace {

using ::testing::HasSubstr;

TEST(Processor, SaysWhatDecidesBits) {
  const std::string plain = describe_processor([](const char*) { return nullptr; });
  EXPECT_THAT(plain, HasSubstr("LibTorch 2."));
  EXPECT_THAT(plain, HasSubstr("kernels " + std::string(kernel::name_of(kernel::isa()))));
  const std::string told = describe_processor([](const char* name) {
    return std::string(name) == "ONEDNN_MAX_CPU_ISA" ? "AVX2" : nullptr;
  });
  EXPECT_EQ(told, plain + ", ONEDNN_MAX_CPU_ISA=AVX2");
  const auto empty = [](const char*) { return ""; };
  EXPECT_EQ(describe_processor(empty), plain);
}

}  // namespace
}  // namespace trireme::tensor
