// Which library computes which matrix product on this processor: by vendor and instruction set, for
// each class of shapes, chosen from measurements (docs/design/014-kernel-table.md).
//
// Never measured during a run: libraries add in different orders, so the table is part of the run's
// identity (docs/numerics.md). It is the built-in one, or a file written by `trireme doctor --tune`
// and named by `train.kernel_table`. Reading it is thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/kernel/isa.h"

namespace trireme::inline v0::tensor {

/// Aten: LibTorch's default (MKL or another BLAS in fp32, oneDNN in bf16). OneDnn: oneDNN's product
/// for plain weights, called by name. Blas: the BLAS that LibTorch exports. Own: kernel/gemm.h.
/// Widened: bf16 operands are converted to fp32 and multiplied by fp32's library of the same table.
enum class Library : std::uint8_t { Aten, OneDnn, Blas, Own, Widened };
std::string_view name_of(Library library) noexcept;

struct KernelTable {
  Library forward, input_gradient, weight_gradient;  // linear layers in fp32
  Library linear_bf16;        // all three in bf16, and convolutions (functions.h) in bf16
  Library small, small_bf16;  // linear layers' products of at most kSmallProduct multiply-adds
  Library attention, attention_bf16;  // a few hundred rows, one head wide
};
/// A column of the table: its name in table files, and the libraries that it may name.
struct KernelColumn {
  const char* name;
  Library KernelTable::*member;
  std::vector<Library> choices;
  const char* meaning;
};
const std::vector<KernelColumn>& kernel_columns();
/// In multiply-adds. Up to this size, calling a library costs more than the product.
inline constexpr std::int64_t kSmallProduct = 4 << 20;
/// The table of one kind of processor.
KernelTable kernel_table(kernel::Vendor vendor, kernel::Isa isa, bool bf16_products) noexcept;
/// Whether this process can use the table; if not, `why` says what is missing.
bool usable(const KernelTable& table, std::string* why = nullptr);

/// The built-in table as changed by TRIREME_ISA (kernel/isa.h) and TRIREME_GEMM=onednn|blas (all fp32
/// products). ConfigError if one of these has another value.
KernelTable table_by_environment();
/// This process's table: the last one given to use_kernel_table(), else table_by_environment().
const KernelTable& kernel_table();
/// Call it before the first product that counts, while no other thread computes. ConfigError if the
/// table is not usable().
void use_kernel_table(const KernelTable& table);

/// The text of a table file: TOML, one key per column, and the instruction set that it is for.
std::string to_toml(const KernelTable& table);
/// ConfigError if it is not a table file, is for another instruction set or is not usable() here.
KernelTable read_kernel_table(const std::string& path);

/// For plans and identities: "kernels avx512, fp32 onednn onednn onednn (forward, input gradient,
/// weight gradient), own if small, bf16 aten, own if small, attention own, in bf16 own".
std::string describe(const KernelTable& table);

}  // namespace trireme::inline v0::tensor
