#include "trireme/sync/distinct_memory.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::parallel::distinct_memory_test {
namespace {

std::string refusal(const std::vector<at::Tensor>& tensors, std::size_t trained = 100) {
  DistinctMemory memory;
  try {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      memory.add(std::string(1, static_cast<char>('a' + i)), tensors[i], i < trained);
  } catch (const ConfigError& error) {
    return error.message();
  }
  return "";
}

TEST(DistinctMemory, RefusesViewsThatOverlap) {
  const at::Tensor flat = at::zeros({24});
  const std::string said = refusal({flat.narrow(0, 0, 10), flat.narrow(0, 9, 10)});
  EXPECT_EQ(said.substr(0, 21), "b and a share memory,") << said;
  EXPECT_NE(refusal({flat, flat.view({4, 6})}), "") << "wholly";
  EXPECT_NE(refusal({flat.view({4, 6}).narrow(1, 0, 3), flat.view({4, 6}).narrow(1, 2, 3)}), "");
  EXPECT_NE(refusal({flat, at::zeros({3}), flat.narrow(0, 23, 1)}), "");
  EXPECT_NE(refusal({flat.view(at::kByte).narrow(0, 4, 4), flat.narrow(0, 1, 1)}), "");
}

TEST(DistinctMemory, TakesViewsSideBySide) {
  const at::Tensor flat = at::zeros({24}), matrix = flat.view({4, 6});
  EXPECT_EQ(refusal({flat.narrow(0, 0, 10), flat.narrow(0, 10, 14)}), "");
  EXPECT_EQ(refusal({matrix.narrow(1, 0, 3), matrix.narrow(1, 3, 3)}), "") << "columns";
  EXPECT_EQ(refusal({flat.slice(0, 0, 24, 2), flat.slice(0, 1, 24, 2)}), "") << "every other one";
  EXPECT_EQ(refusal({at::zeros({3}), at::zeros({3}), at::zeros({0}), at::zeros({0})}), "");
  EXPECT_EQ(refusal({matrix.t()}), "");
}

TEST(DistinctMemory, LooksAtWhatIsTrained) {
  const at::Tensor flat = at::zeros({24});
  EXPECT_EQ(refusal({flat, flat.narrow(0, 3, 4)}, 0), "") << "two buffers";
  EXPECT_NE(refusal({flat, flat.narrow(0, 3, 4)}, 1), "") << "a buffer in a parameter";
}

TEST(DistinctMemory, RefusesATensorThatOverlapsItself) {
  EXPECT_NE(refusal({at::zeros({1}).expand({5})}), "");
  EXPECT_NE(refusal({at::zeros({8}).as_strided({3, 4}, {2, 1})}), "") << "windows";
  EXPECT_EQ(refusal({at::zeros({12}).as_strided({3, 4}, {4, 1})}), "");
}

// A new storage may get the address of one that was freed.
TEST(DistinctMemory, ForgetsNoAddress) {
  DistinctMemory memory;
  for (int i = 0; i < 100; ++i) memory.add(std::to_string(i), at::zeros({1000}), true);
}

}  // namespace
}  // namespace trireme::parallel::distinct_memory_test
