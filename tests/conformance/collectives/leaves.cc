#include "tests/conformance/collectives/leaves.h"

#include <bit>
#include <cstring>
#include <random>

namespace trireme::test {

Bytes leaf(DType dtype, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed * 977 + static_cast<std::uint64_t>(dtype));
  Bytes bytes(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const double value = (double(random() >> 11) * 0x1p-53 - 0.5) * double(1 << (random() % 8));
    const float narrow = float(value);
    std::uint32_t bits;
    std::memcpy(&bits, &narrow, 4);
    const std::uint16_t half =
        std::uint16_t(bits >> 16 & 0x8000) | std::uint16_t(random() % 0x5000);
    const std::uint16_t brain = std::uint16_t(bits >> 16);
    const std::uint64_t integer = random();
    const void* from = dtype == DType::F64    ? static_cast<const void*>(&value)
                       : dtype == DType::F32  ? static_cast<const void*>(&narrow)
                       : dtype == DType::BF16 ? static_cast<const void*>(&brain)
                       : dtype == DType::F16  ? static_cast<const void*>(&half)
                                              : &integer;
    std::memcpy(&bytes[i * size_of(dtype)], from, size_of(dtype));
  }
  return bytes;
}

namespace {

float widened(DType dtype, const std::byte* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, 2);
  if (dtype == DType::F16) return float(std::bit_cast<_Float16>(bits));
  return std::bit_cast<float>(std::uint32_t(bits) << 16);
}

std::uint16_t narrowed(DType dtype, float value) {  // rounds to nearest even
  if (dtype == DType::F16) return std::bit_cast<std::uint16_t>(_Float16(value));
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float tree_of_floats(kernel::Combine op, DType dtype, const std::vector<Bytes>& leaves,
                     kernel::LeafRange node, std::size_t element) {
  if (node.count == 1) return widened(dtype, &leaves[node.first][2 * element]);
  const std::uint32_t half = node.count / 2;
  const float left = tree_of_floats(op, dtype, leaves, {node.first, half}, element);
  const float right =
      tree_of_floats(op, dtype, leaves, {node.first + half, node.count - half}, element);
  return op == kernel::Combine::Sum ? left + right : left * right;
}

// Accumulated in fp32, rounded once.
Bytes wide_tree(kernel::Combine op, DType dtype, const std::vector<Bytes>& leaves,
                kernel::LeafRange node) {
  Bytes sum(leaves[node.first].size());
  for (std::size_t i = 0; i < sum.size() / 2; ++i) {
    const std::uint16_t bits = narrowed(dtype, tree_of_floats(op, dtype, leaves, node, i));
    std::memcpy(&sum[2 * i], &bits, 2);
  }
  return sum;
}

}  // namespace

Bytes tree(kernel::Combine op, DType dtype, const std::vector<Bytes>& leaves,
           kernel::LeafRange node) {
  if (node.count == 1) return leaves[node.first];
  const bool halves = dtype == DType::BF16 || dtype == DType::F16;
  if (halves && (op == kernel::Combine::Sum || op == kernel::Combine::Product)) {
    return wide_tree(op, dtype, leaves, node);
  }
  const std::uint32_t half = node.count / 2;
  Bytes left = tree(op, dtype, leaves, {node.first, half});
  const Bytes right = tree(op, dtype, leaves, {node.first + half, node.count - half});
  kernel::combine(op, dtype, left.data(), right.data(), left.data(), left.size() / size_of(dtype));
  return left;
}

Buffer buffer_over(Bytes& bytes, DType dtype) {
  return {bytes.data(), bytes.size() / size_of(dtype), dtype, {}, {}, {}};
}

}  // namespace trireme::test
