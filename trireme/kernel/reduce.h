// Element-wise reductions on raw memory: the arithmetic of every collective.
//
// An element's result depends on its operands only, never on its position: tails run the same
// vector code on a padded copy. Sums and products of 16-bit floats are accumulated in fp32: inner
// nodes of the tree are fp32, also in messages, and only the root is rounded (to nearest even).
// Integers wrap. Min and Max return a NaN if either operand is one. The code is that of isa(), and
// gives the same bits at every level (SSE2 for Generic).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/kernel/tree_sum.h"

namespace trireme::inline v0::kernel {

enum class Combine : std::uint8_t { Sum, Min, Max, Product };

/// F64, F32, BF16, F16, I64, I32, U8.
bool can_combine(DType dtype) noexcept;
/// F64, F32, BF16, F16.
bool can_divide(DType dtype) noexcept;

/// out[i] = left[i] (op) right[i]. `out` may be `left` or `right`; other overlaps are not allowed.
void combine(Combine op, DType dtype, const void* left, const void* right, void* out,
             std::size_t count);

/// True if partial results of `dtype` are kept in fp32: Sum and Product of BF16 and F16.
bool accumulates_wide(Combine op, DType dtype) noexcept;
/// Like combine(), but operands and results marked *_wide are fp32. Requires accumulates_wide(op,
/// dtype). `out` may be an operand of the same width.
void combine_wide(Combine op, DType dtype, const void* left, bool left_wide, const void* right,
                  bool right_wide, void* out, bool out_wide, std::size_t count);

/// values[i] /= by, rounded once (the last step of a mean). Floating types only.
void divide(DType dtype, void* values, std::size_t count, double by);

/// One step of folding operands into the root of T(0, total). Slots start as the operands, one per
/// node, ascending; slot `left` becomes slot `left` (op) slot `right`. Slot 0 ends as the result.
struct FoldStep {
  std::uint16_t left, right;
};
/// The steps for `nodes`, which are ascending and cover the whole range (CheckFailure otherwise).
std::vector<FoldStep> fold_steps(std::span<const LeafRange> nodes, std::uint32_t total);

/// Folds `in` by `steps` and stores the result to every pointer of `out`. Reads each operand and
/// writes each output once. An output may be an operand. Divides the result by `by` unless it is 0.
/// (Stores that bypass the caches were three times slower: docs/design/004-direct-reduce.md.)
void fold(Combine op, DType dtype, std::span<const FoldStep> steps, std::span<const void* const> in,
          std::span<void* const> out, std::size_t count, double by);

}  // namespace trireme::inline v0::kernel
