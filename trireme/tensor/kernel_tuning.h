// Measuring this processor's matrix products library by library, for a kernel table of its own
// (`trireme doctor --tune`), and with the table that is in use, for predictions. Within a run
// only linear_rate(), which uses the table as it is (kernel_table.h).
#pragma once

#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/tensor/kernel_table.h"

namespace trireme {
inline namespace v0 {
namespace tensor {

struct MeasuredProduct {
  std::string product;  // "forward", "attention_bf16": a column of the table
  Library KernelTable::*column = nullptr;
  Library library{};
  double gflops = 0;  // the geometric mean over the column's shapes, each its best run
};
/// Every library that can compute each column, over shapes of small transformers (1024 x 384 x
/// 1536, 512 x 768 x 768; a head of 64 against 256 keys), with the process's kernel threads; each
/// shape is run for `each`. Uses other tables meanwhile and restores the process's own: no other
/// thread may compute.
std::vector<MeasuredProduct> measure_products(Duration each);
/// The fastest of each column; the process's own choice where another wins by less than 3 %, so
/// that noise does not change bits from one measurement to the next.
KernelTable fastest(const std::vector<MeasuredProduct>& measured);

/// Operations a second of a linear layer's three products together, as this process computes them:
/// its kernel table, its kernel threads, the shapes above. `precision`: fp64 | fp32 | bf16 | fp16.
/// Each product of each shape is run for `each`; the best run counts.
double linear_rate(const std::string& precision, Duration each);

}  // namespace tensor
}  // namespace v0
}  // namespace trireme
