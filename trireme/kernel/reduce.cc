#include "trireme/kernel/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <string>

#include "trireme/base/check.h"
#include "trireme/kernel/isa.h"
#include "trireme/kernel/reduce_table.h"

namespace trireme::inline v0::kernel {
namespace {

// One block of every operand and of the partial sums stays in the first-level cache.
constexpr std::size_t kBlockBytes = 2048;

// A type's index in the tables, or -1. By DType: F64 F32 BF16 F16 I64 I32 I16 I8 U8 Bool.
constexpr int kKinds[] = {0, 1, 2, 3, 4, 5, -1, -1, 6, -1};
static_assert(std::size(kKinds) == static_cast<std::size_t>(DType::Bool) + 1);

int kind_of(DType dtype) noexcept { return kKinds[static_cast<std::size_t>(dtype)]; }

const ReduceTable& table() noexcept {
  static const ReduceTable& chosen = isa() == Isa::Avx512 ? kReduceAvx512
                                     : isa() == Isa::Avx2 ? kReduceAvx2
                                                          : kReduceSse2;
  return chosen;
}

CombineFn combine_function(Combine op, DType dtype) {
  const int kind = kind_of(dtype);
  TRIREME_CHECK(kind >= 0);
  return table().combine[static_cast<int>(op)][kind];
}

CombineFn mixed_function(Combine op, DType dtype, bool left, bool right, bool out) {
  return table().mixed[op == Combine::Product][dtype == DType::F16][4 * left + 2 * right + out];
}

// The functions for the steps of fold(): in the type itself, or for 16-bit operands with fp32 sums.
struct StepFunctions {
  Combine op;
  DType dtype;
  bool wide;
  CombineFn narrow;
  CombineFn of(bool left_partial, bool right_partial, bool last) const {
    return wide ? mixed_function(op, dtype, left_partial, right_partial, !last) : narrow;
  }
};

// Partial sums of one block. Slots start as the operands and move to scratch as they are combined.
void fold_block(const StepFunctions& functions, std::span<const FoldStep> steps, const void** slots,
                std::byte* scratch, std::span<void* const> out, std::size_t count) {
  const auto partial = [&](std::size_t slot) {
    return slots[slot] == scratch + slot * kBlockBytes;
  };
  for (std::size_t s = 0; s + 1 < steps.size(); ++s) {
    const auto [left, right] = steps[s];
    void* to = scratch + left * kBlockBytes;
    functions.of(partial(left), partial(right), false)(slots[left], slots[right], &to, 1, count);
    slots[left] = to;
  }
  const auto [left, right] = steps.back();
  functions.of(partial(left), partial(right), true)(slots[left], slots[right], out.data(),
                                                    out.size(), count);
}

}  // namespace

bool can_combine(DType dtype) noexcept { return kind_of(dtype) >= 0; }
bool can_divide(DType dtype) noexcept { return kind_of(dtype) >= 0 && kind_of(dtype) < 4; }

void combine(Combine op, DType dtype, const void* left, const void* right, void* out,
             std::size_t count) {
  combine_function(op, dtype)(left, right, &out, 1, count);
}

bool accumulates_wide(Combine op, DType dtype) noexcept {
  return (op == Combine::Sum || op == Combine::Product) &&
         (dtype == DType::BF16 || dtype == DType::F16);
}

void combine_wide(Combine op, DType dtype, const void* left, bool left_wide, const void* right,
                  bool right_wide, void* out, bool out_wide, std::size_t count) {
  TRIREME_CHECK(accumulates_wide(op, dtype));
  mixed_function(op, dtype, left_wide, right_wide, out_wide)(left, right, &out, 1, count);
}

void divide(DType dtype, void* values, std::size_t count, double by) {
  TRIREME_CHECK(can_divide(dtype));
  table().divide[kind_of(dtype)](values, count, by);
}

std::vector<FoldStep> fold_steps(std::span<const LeafRange> nodes, std::uint32_t total) {
  std::vector<LeafRange> left(nodes.begin(), nodes.end());
  TRIREME_CHECK(std::is_sorted(left.begin(), left.end()));
  TRIREME_CHECK(left.size() <= std::numeric_limits<std::uint16_t>::max() + 1u);  // slots
  const auto slot_of = [&](LeafRange node) {  // a partial sum is in the slot of its first operand
    const auto at = std::lower_bound(nodes.begin(), nodes.end(), LeafRange{node.first, 0});
    return static_cast<std::uint16_t>(at - nodes.begin());
  };
  std::vector<FoldStep> steps;
  for (const Merge& merge : merges(left, total)) {
    steps.push_back({slot_of(merge.left), slot_of(merge.right)});
  }
  TRIREME_CHECK(left.size() == 1u);
  TRIREME_CHECK(left.front() == (LeafRange{0, total}));
  return steps;
}

void fold(Combine op, DType dtype, std::span<const FoldStep> steps, std::span<const void* const> in,
          std::span<void* const> out, std::size_t count, double by) {
  const StepFunctions functions{op, dtype, accumulates_wide(op, dtype),
                                combine_function(op, dtype)};
  const std::size_t width = size_of(dtype);
  TRIREME_CHECK(steps.size() + 1 == in.size());
  if (steps.size() == 1 && by == 0) {  // two operands: one pass, no blocks
    return functions.of(false, false, true)(in[0], in[1], out.data(), out.size(), count);
  }
  const std::size_t block = kBlockBytes / (functions.wide ? sizeof(float) : width);
  std::vector<const void*> slots(in.size());
  std::vector<void*> to(out.size());
  const auto scratch = std::make_unique_for_overwrite<std::byte[]>(in.size() * kBlockBytes + 64);
  auto* base = scratch.get() + (-reinterpret_cast<std::uintptr_t>(scratch.get()) & 63);
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t length = std::min(block, count - begin);
    for (std::size_t i = 0; i < in.size(); ++i) {
      slots[i] = static_cast<const std::byte*>(in[i]) + begin * width;
    }
    for (std::size_t k = 0; k < out.size(); ++k) {
      to[k] = static_cast<std::byte*>(out[k]) + begin * width;
    }
    if (by == 0 && !steps.empty()) {
      fold_block(functions, steps, slots.data(), base, to, length);
      continue;
    }
    void* result = base;
    if (steps.empty()) {
      std::memcpy(result, slots[0], length * width);
    } else {
      fold_block(functions, steps, slots.data(), base, {&result, 1}, length);
    }
    if (by != 0) divide(dtype, result, length, by);
    for (void* one : to) std::memcpy(one, result, length * width);
  }
}

}  // namespace trireme::inline v0::kernel
