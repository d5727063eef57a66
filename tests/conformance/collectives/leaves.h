// Values and the reference sum for the collectives' suites.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/kernel/reduce.h"
#include "trireme/kernel/tree_sum.h"

namespace trireme::test {

using Bytes = std::vector<std::byte>;

inline constexpr DType kTypes[] = {DType::F64, DType::F32, DType::BF16, DType::F16,
                                   DType::I64, DType::I32, DType::U8};

/// Numbers whose sum depends on the order, so that a wrong order is noticed.
Bytes leaf(DType dtype, std::size_t count, std::uint64_t seed);
/// Adds `leaves` in the order of docs/numerics.md, in their own type; 16-bit floats in fp32,
/// rounded once at the end.
Bytes tree(kernel::Combine op, DType dtype, const std::vector<Bytes>& leaves,
           kernel::LeafRange node);
inline Bytes tree(kernel::Combine op, DType dtype, const std::vector<Bytes>& leaves) {
  return tree(op, dtype, leaves, {0, static_cast<std::uint32_t>(leaves.size())});
}
Buffer buffer_over(Bytes& bytes, DType dtype);

}  // namespace trireme::test
