// Which library computes which matrix product on this processor: by vendor and instruction set, for
// each shape class, written from measurements (docs/design/014-kernel-table.md).
//
// Never measured inside a run: libraries add in different orders, so the table is part of the run's
// identity (NUMERICS.md). Decided at the first call; thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/kernel/isa.h"

namespace trireme {
inline namespace v0 {
namespace tensor {

/// Aten: what LibTorch does itself (MKL or another BLAS in fp32, oneDNN in bf16). OneDnn: its
/// product for plain weights, asked for by name. Blas: the BLAS that LibTorch exports. Own:
/// kernel/gemm.h. Widened: bf16 operands become fp32 first.
enum class Library : std::uint8_t { Aten, OneDnn, Blas, Own, Widened };
std::string_view name_of(Library library) noexcept;

struct KernelTable {
  Library forward, input_gradient, weight_gradient;  // linear layers in fp32; in bf16 all are Aten
  Library attention, attention_bf16;                 // a few hundred rows, one head wide
};
/// The table of one kind of processor.
KernelTable kernel_table(kernel::Vendor vendor, kernel::Isa isa, bool bf16_products) noexcept;
/// This process's: TRIREME_ISA (kernel/isa.h) and TRIREME_GEMM=onednn|blas (all fp32 products)
/// change it.
const KernelTable& kernel_table();

/// For plans and identities: "kernels avx512, fp32 onednn onednn onednn (forward, input gradient,
/// weight gradient), bf16 aten, attention own, in bf16 own".
std::string describe(const KernelTable& table);

}  // namespace tensor
}  // namespace v0
}  // namespace trireme
