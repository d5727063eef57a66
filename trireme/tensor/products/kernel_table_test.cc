#include "trireme/tensor/products/kernel_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/products/kernel_tuning.h"

namespace trireme::tensor {
namespace {

using kernel::Isa;
using kernel::Vendor;

TEST(KernelTable, GivesEachVendorWhatWasFasterThere) {
  const KernelTable amd = kernel_table(Vendor::Amd, Isa::Avx512, true);
  EXPECT_EQ(amd.forward, Library::OneDnn);
  EXPECT_EQ(amd.attention, Library::Own);
  EXPECT_EQ(amd.attention_bf16, Library::Own);
  EXPECT_EQ(kernel_table(Vendor::Amd, Isa::Avx2, false).forward, Library::Aten);
  const KernelTable intel = kernel_table(Vendor::Intel, Isa::Avx512, true);
  EXPECT_EQ(intel.forward, Library::Aten);
  EXPECT_EQ(intel.attention, Library::Blas);
  EXPECT_EQ(intel.attention_bf16, Library::Blas);
}

TEST(KernelTable, AsksForBf16ProductsOnlyWhereTheProcessorHasThem) {
  for (Vendor vendor : {Vendor::Other, Vendor::Intel, Vendor::Amd}) {
    for (Isa isa : {Isa::Generic, Isa::Avx2, Isa::Avx512}) {
      EXPECT_EQ(kernel_table(vendor, isa, false).attention_bf16, Library::Widened);
    }
  }
}

// On x86, LibTorch has fast products for bf16 from AVX-512 on.
TEST(KernelTable, WidensBf16OnProcessorsWithoutProductsOfIt) {
  for (Vendor vendor : {Vendor::Other, Vendor::Intel, Vendor::Amd}) {
    for (Isa isa : {Isa::Avx2, Isa::Avx512}) {
      EXPECT_EQ(kernel_table(vendor, isa, false).linear_bf16, Library::Widened);
      EXPECT_EQ(kernel_table(vendor, isa, false).small_bf16, Library::Widened);
    }
    EXPECT_EQ(kernel_table(vendor, Isa::Avx512, true).linear_bf16, Library::Aten);
    EXPECT_NE(kernel_table(vendor, Isa::Avx512, true).small_bf16, Library::Widened);
  }
  for (Vendor vendor : {Vendor::Intel, Vendor::Amd})
    EXPECT_EQ(kernel_table(vendor, Isa::Generic, false).linear_bf16, Library::Widened);
  // Not an x86 processor.
  EXPECT_EQ(kernel_table(Vendor::Other, Isa::Generic, false).linear_bf16, Library::Aten);
}

// Two processes with equal descriptions compute alike: every column is in the description.
TEST(KernelTable, DescriptionTellsTablesApart) {
  const KernelTable table = kernel_table(Vendor::Intel, Isa::Avx512, true);
  for (Library KernelTable::*column :
       {&KernelTable::forward, &KernelTable::input_gradient, &KernelTable::weight_gradient,
        &KernelTable::linear_bf16, &KernelTable::small, &KernelTable::small_bf16,
        &KernelTable::attention, &KernelTable::attention_bf16}) {
    KernelTable other = table;
    other.*column = table.*column == Library::Own ? Library::Aten : Library::Own;
    EXPECT_NE(describe(other), describe(table));
  }
}

TEST(KernelTable, RefusesVariablesWithOtherValues) {
  for (const auto& [name, wrong] : {std::pair{"TRIREME_GEMM", "mkl"}, {"TRIREME_ISA", "avx-512"}}) {
    const char* const before = std::getenv(name);
    const std::string kept = before != nullptr ? before : "";
    ::setenv(name, wrong, 1);
    try {
      table_by_environment();
      ADD_FAILURE() << name;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(name));
      EXPECT_THAT(error.what(), ::testing::HasSubstr(wrong));
    }
    before != nullptr ? ::setenv(name, kept.c_str(), 1) : ::unsetenv(name);
  }
  EXPECT_TRUE(usable(table_by_environment()));
}

// Each test has its own file.
struct TableFile : ::testing::Test {
  std::string write(const std::string& text) const {
    std::ofstream(path) << text;
    return path;
  }
  std::string refusal(const std::string& text) const {
    try {
      read_kernel_table(write(text));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
  ~TableFile() override { std::filesystem::remove(path); }
  const std::string path = ::testing::TempDir() + "kernel_table_test." +
                           ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(TableFile, IsReadAsItWasWritten) {
  KernelTable table = kernel_table();
  table.attention = Library::Own;
  table.input_gradient = Library::OneDnn;
  table.forward = Library::Aten;
  table.linear_bf16 = Library::Widened;
  table.small = Library::OneDnn;
  table.small_bf16 = Library::Widened;
  table.attention_bf16 = Library::Widened;
  EXPECT_EQ(describe(read_kernel_table(write(to_toml(table)))), describe(table));
}

TEST_F(TableFile, RefusesAnotherProcessorsAndWhatNoColumnTakes) {
  const std::string text = to_toml(kernel_table());
  EXPECT_THAT(refusal("isa = \"riscv\"\n" + text.substr(text.find('\n') + 1)),
              ::testing::HasSubstr("it is for riscv, this process uses"));
  EXPECT_THAT(refusal("forward = \"own\"\n"), ::testing::HasSubstr("forward"));
  EXPECT_THAT(refusal("forwards = \"aten\"\n"), ::testing::HasSubstr("forward"));
}

TEST_F(TableFile, MissingFileIsNamedAsAKernelTable) {
  try {
    read_kernel_table(path);
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(std::string(error.what()),
                ::testing::AllOf(::testing::HasSubstr("cannot read the kernel table " + path),
                                 ::testing::HasSubstr("trireme doctor --tune FILE")));
  }
}

TEST(KernelTuning, MeasuresEveryColumnAndRestoresTheTable) {
  set_up_process({.kernel_threads = 1});
  const std::string before = describe(kernel_table());
  const auto measured = measure_products(std::chrono::milliseconds(1));
  EXPECT_EQ(describe(kernel_table()), before);
  for (Library KernelTable::*column :
       {&KernelTable::forward, &KernelTable::input_gradient, &KernelTable::weight_gradient,
        &KernelTable::linear_bf16, &KernelTable::small, &KernelTable::small_bf16,
        &KernelTable::attention, &KernelTable::attention_bf16}) {
    int libraries = 0;
    for (const MeasuredProduct& one : measured) {
      if (one.column != column) continue;
      ++libraries;
      EXPECT_GT(one.gflops, 0) << one.product;
    }
    EXPECT_GE(libraries, 1);
  }
  std::string why;
  EXPECT_TRUE(usable(fastest(measured), &why)) << why;
}

TEST(KernelTuning, TakesTheFastestButNotByAHair) {
  KernelTable own = kernel_table();
  const auto column = &KernelTable::forward;
  const Library other = own.forward == Library::Aten ? Library::OneDnn : Library::Aten;
  EXPECT_EQ(
      fastest({{"forward", column, own.forward, 100}, {"forward", column, other, 102}}).forward,
      own.forward);
  EXPECT_EQ(
      fastest({{"forward", column, own.forward, 100}, {"forward", column, other, 110}}).forward,
      other);
}

}  // namespace
}  // namespace trireme::tensor
