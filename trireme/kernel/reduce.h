// Element-wise reductions on raw memory, the arithmetic of every collective.
//
// An element's result depends on its operands alone, never on its position: tails run the vector
// code of the body on a padded copy. Sums and products of 16-bit floats are accumulated in fp32: a
// node of the tree that is neither a leaf nor the root is fp32, also on a wire, and only the root
// is rounded, to nearest even. Integers wrap. Min and Max return a NaN where either side is one.
// AVX-512, AVX2 or SSE2, chosen once at start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/base/dtype.h"
#include "trireme/kernel/tree_sum.h"

namespace trireme {
inline namespace v0 {
namespace kernel {

enum class Combine : std::uint8_t { Sum, Min, Max, Product };

/// F64, F32, BF16, F16, I64, I32, U8.
bool can_combine(DType dtype) noexcept;
/// F64, F32, BF16, F16.
bool can_divide(DType dtype) noexcept;

/// out[i] = left[i] (op) right[i]. `out` may be `left` or `right`; other overlaps are not allowed.
void combine(Combine op, DType dtype, const void* left, const void* right, void* out,
             std::size_t count);

/// True where partial results of `dtype` are kept in fp32: Sum and Product of BF16 and F16.
bool accumulates_wide(Combine op, DType dtype) noexcept;
/// As combine, of values of `dtype` or, where *_wide, of fp32; accumulates_wide(op, dtype) only.
/// `out` may be an operand of the same width, or a 16-bit operand's where `out` is 16-bit.
void combine_wide(Combine op, DType dtype, const void* left, bool left_wide, const void* right,
                  bool right_wide, void* out, bool out_wide, std::size_t count);

/// values[i] /= by, rounded once (a Mean's last step). Floating types only.
void divide(DType dtype, void* values, std::size_t count, double by);

/// How to fold operands (one per node, ascending) into the root of T(0, total): slot `left` becomes
/// slot `left` (op) slot `right`; slot 0 is the result.
struct FoldStep {
  std::uint16_t left, right;
};
/// `nodes` ascending and together the whole range; CheckFailure otherwise.
std::vector<FoldStep> fold_steps(std::span<const LeafRange> nodes, std::uint32_t total);

/// Folds `in` by `steps` and stores the result to every pointer of `out`, reading each operand once
/// and writing each output once. An output may be an operand. by: 0, or a divisor of the result.
/// (Stores that bypass the caches were three times slower here: docs/design/004-direct-reduce.md.)
void fold(Combine op, DType dtype, std::span<const FoldStep> steps, std::span<const void* const> in,
          std::span<void* const> out, std::size_t count, double by);

/// "avx512", "avx2" or "sse2".
std::string_view instruction_set() noexcept;

}  // namespace kernel
}  // namespace v0
}  // namespace trireme
