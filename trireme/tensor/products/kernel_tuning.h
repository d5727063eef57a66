// Measures this processor's matrix products, library by library, for a kernel table (`trireme
// doctor --tune`). Never during a run (kernel_table.h).
#pragma once

#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/tensor/products/kernel_table.h"

namespace trireme::inline v0::tensor {

struct MeasuredProduct {
  std::string product;  // "forward", "attention_bf16": a column of the table
  Library KernelTable::*column = nullptr;
  Library library{};
  double gflops = 0;  // geometric mean over the column's shapes, best run of each
};
/// Measures every library that can compute each column, over shapes of small transformers (1024 x
/// 384 x 1536, 512 x 768 x 768; a head of 64 against 256 keys), with the process's kernel threads.
/// Each shape runs for `each`. Changes the process's table meanwhile: no other thread may compute.
std::vector<MeasuredProduct> measure_products(Duration each);
/// The fastest library of each column. The process's choice stays unless another library is faster
/// by more than 3 %, so that noise does not change bits between measurements.
KernelTable fastest(const std::vector<MeasuredProduct>& measured);

}  // namespace trireme::inline v0::tensor
