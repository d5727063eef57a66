#include "trireme/tensor/kernel_table.h"

#include <gtest/gtest.h>

namespace trireme::tensor {
namespace {

using kernel::Isa;
using kernel::Vendor;

TEST(KernelTable, GivesEachVendorWhatWasFasterThere) {
  const KernelTable amd = kernel_table(Vendor::Amd, Isa::Avx512, true);
  EXPECT_EQ(amd.forward, Library::OneDnn);
  EXPECT_EQ(amd.attention, Library::Own);
  EXPECT_EQ(amd.attention_bf16, Library::Own);
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

// Two processes that describe it alike compute alike: every column is in it.
TEST(KernelTable, DescriptionTellsTablesApart) {
  const KernelTable table = kernel_table(Vendor::Intel, Isa::Avx512, true);
  for (Library KernelTable::*column :
       {&KernelTable::forward, &KernelTable::input_gradient, &KernelTable::weight_gradient,
        &KernelTable::attention, &KernelTable::attention_bf16}) {
    KernelTable other = table;
    other.*column = Library::Own;
    EXPECT_NE(describe(other), describe(table));
  }
}

}  // namespace
}  // namespace trireme::tensor
