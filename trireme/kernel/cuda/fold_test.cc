// Compares the host's build of the GPU's fold with kernel::fold, bit for bit.
#include "trireme/kernel/cuda/fold.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "trireme/kernel/cuda/kernel_image.h"
#include "trireme/kernel/reduce.h"
#include "trireme/testing/gpu/kernels_on_host.h"

namespace trireme::kernel::cuda {
namespace {

constexpr DType kKinds[] = {DType::F64, DType::F32, DType::BF16, DType::F16,
                            DType::I64, DType::I32, DType::U8};
constexpr Combine kOps[] = {Combine::Sum, Combine::Min, Combine::Max, Combine::Product};

using Bytes = std::vector<std::byte>;

bool is_nan(DType dtype, const std::byte* at) {
  std::uint16_t half;
  std::memcpy(&half, at, sizeof half);
  switch (dtype) {
    case DType::F64: {
      double value;
      std::memcpy(&value, at, sizeof value);
      return std::isnan(value);
    }
    case DType::F32: {
      float value;
      std::memcpy(&value, at, sizeof value);
      return std::isnan(value);
    }
    case DType::BF16:
      return (half & 0x7fff) > 0x7f80;
    case DType::F16:
      return (half & 0x7fff) > 0x7c00;
    default:
      return false;
  }
}

// Equal bits, or both NaN: the payload of a NaN depends on the processor.
::testing::AssertionResult same(DType dtype, const Bytes& a, const Bytes& b) {
  const std::size_t width = size_of(dtype);
  for (std::size_t at = 0; at < a.size(); at += width) {
    if (std::memcmp(&a[at], &b[at], width) == 0) continue;
    if (width > 1 && is_nan(dtype, &a[at]) && is_nan(dtype, &b[at])) continue;
    return ::testing::AssertionFailure() << name_of(dtype) << " element " << at / width;
  }
  return ::testing::AssertionSuccess();
}

// Any bits, which include denormals, infinities and NaNs; or normal values whose sums round.
Bytes random_values(DType dtype, std::size_t count, bool any_bits, std::mt19937& random) {
  Bytes bytes(count * size_of(dtype));
  for (auto& one : bytes) one = std::byte(random());
  if (any_bits) return bytes;
  std::normal_distribution<double> normal;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = normal(random) * std::exp2(int(random() % 9) - 4);
    if (dtype == DType::F64) std::memcpy(&bytes[i * 8], &value, 8);
    const auto single = static_cast<float>(value);
    if (dtype == DType::F32) std::memcpy(&bytes[i * 4], &single, 4);
    if (dtype == DType::BF16)
      std::memcpy(&bytes[i * 2], reinterpret_cast<const char*>(&single) + 2, 2);
    if (dtype == DType::F16) {
      const Float16 half = Codec<Float16>::encode(single);
      std::memcpy(&bytes[i * 2], &half, 2);
    }
  }
  return bytes;
}

struct Case {
  std::vector<LeafRange> nodes;
  std::uint32_t total;
};

// One leaf per rank, or the maximal nodes of every rank's share of `total` leaves.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (int size : {1, 2, 3, 4, 5, 8, 64}) {
    for (std::uint32_t total : {std::uint32_t(size), 1u, 7u, 12u, 33u}) {
      Case one{{}, total};
      for (int rank = 0; rank < size; ++rank) {
        for (const LeafRange& node : maximal_nodes(contiguous_share(total, size, rank), total)) {
          one.nodes.push_back(node);
        }
      }
      all.push_back(std::move(one));
    }
  }
  return all;
}

Bytes folded(Combine op, DType dtype, const Case& one, const std::vector<Bytes>& in, double by) {
  const auto merges = merge_counts(fold_steps(one.nodes, one.total), in.size());
  Bytes out(in.front().size());
  FoldArguments arguments{};
  for (std::size_t k = 0; k < in.size(); ++k) {
    arguments.in[k] = in[k].data();
    arguments.merges[k] = merges[k];
  }
  arguments.out = out.data();
  arguments.count = out.size() / size_of(dtype);
  arguments.by = by;
  arguments.num_operands = static_cast<std::uint32_t>(in.size());
  testing::kernel_on_host(fold_kernel_name(op, dtype))->run(&arguments);
  return out;
}

TEST(CudaFold, GivesTheBitsOfTheCpusFold) {
  std::mt19937 random(3);
  constexpr std::size_t kCount = 257;
  for (const Case& one : cases()) {
    const auto steps = fold_steps(one.nodes, one.total);
    for (const DType dtype : kKinds) {
      for (const Combine op : kOps) {
        for (const bool any_bits : {false, true}) {
          std::vector<Bytes> in;
          std::vector<const void*> operands;
          for (std::size_t k = 0; k < one.nodes.size(); ++k) {
            in.push_back(random_values(dtype, kCount, any_bits, random));
          }
          for (const Bytes& bytes : in) operands.push_back(bytes.data());
          for (const double by : {0.0, 3.0}) {
            if (by != 0 && (op != Combine::Sum || !can_divide(dtype))) continue;
            Bytes expected(in.front().size());
            void* const out[] = {expected.data()};
            fold(op, dtype, steps, operands, out, kCount, by);
            ASSERT_TRUE(same(dtype, folded(op, dtype, one, in, by), expected))
                << "operation " << int(op) << ", " << in.size() << " operands of " << one.total
                << " leaves, divided by " << by << ", any bits " << any_bits;
          }
        }
      }
    }
  }
}

TEST(CudaFold, OtherOrdersOfAdditionGiveOtherBits) {  // otherwise the test above proves nothing
  std::mt19937 random(5);
  const Case tree{{{0, 1}, {1, 1}, {2, 1}, {3, 1}}, 4};
  std::vector<Bytes> in;
  for (int k = 0; k < 4; ++k) in.push_back(random_values(DType::F32, 1000, false, random));
  const Bytes right = folded(Combine::Sum, DType::F32, tree, in, 0);
  std::swap(in[1], in[2]);
  EXPECT_FALSE(same(DType::F32, folded(Combine::Sum, DType::F32, tree, in, 0), right));
}

TEST(CudaFold, EveryHalfIsDecodedAndEncodedAsOnTheCpu) {
  std::vector<std::uint16_t> all(65536), zero(65536, 0x8000);  // x + -0 = x
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const Case pair{{{0, 1}, {1, 1}}, 2};
  for (const DType dtype : {DType::F16, DType::BF16}) {
    Bytes a(2 * all.size()), b(a.size()), expected(a.size());
    std::memcpy(a.data(), all.data(), a.size());
    std::memcpy(b.data(), zero.data(), b.size());
    combine(Combine::Sum, dtype, a.data(), b.data(), expected.data(), all.size());
    EXPECT_TRUE(same(dtype, folded(Combine::Sum, dtype, pair, {a, b}, 0), expected));
  }
}

TEST(CudaFold, MergeCountsOfSevenLeaves) {  // ((0 (1 2)) ((3 4) (5 6)))
  std::vector<LeafRange> leaves;
  for (std::uint32_t leaf = 0; leaf < 7; ++leaf) leaves.push_back({leaf, 1});
  EXPECT_EQ(merge_counts(fold_steps(leaves, 7), 7),
            (std::vector<std::uint8_t>{0, 0, 2, 0, 1, 0, 3}));
}

TEST(CudaFold, KernelsHaveDistinctNames) {
  std::set<std::string> names;
  for (const Combine op : kOps) {
    for (const DType dtype : kKinds) names.insert(fold_kernel_name(op, dtype));
  }
  EXPECT_EQ(names.size(), 28u);
  EXPECT_TRUE(names.contains("trireme_fold_product_bf16"));
}

}  // namespace
}  // namespace trireme::kernel::cuda
