// Which library computes which matrix product on this processor: by vendor and instruction set, for
// each shape class, written from measurements (docs/design/014-kernel-table.md).
//
// Never measured inside a run: libraries add in different orders, so the table is part of the run's
// identity (NUMERICS.md). It is that of the tree, or a file's that `trireme doctor --tune` wrote
// and `train.kernel_table` names. Reading it is thread safe.
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
/// Whether this process can run it: `why` says what is missing.
bool usable(const KernelTable& table, std::string* why = nullptr);

/// This process's: the one last given to use_kernel_table(), or else the tree's. TRIREME_ISA
/// (kernel/isa.h) and TRIREME_GEMM=onednn|blas (all fp32 products) change the latter.
const KernelTable& kernel_table();
/// Before the first product that counts, while no other thread computes. ConfigError where it is
/// not usable().
void use_kernel_table(const KernelTable& table);

/// The file's text: TOML, one key a column, and the instruction set that it is for.
std::string to_toml(const KernelTable& table);
/// ConfigError where it is no such file, is for another instruction set or not usable() here.
KernelTable read_kernel_table(const std::string& path);

/// For plans and identities: "kernels avx512, fp32 onednn onednn onednn (forward, input gradient,
/// weight gradient), bf16 aten, attention own, in bf16 own".
std::string describe(const KernelTable& table);

}  // namespace tensor
}  // namespace v0
}  // namespace trireme
