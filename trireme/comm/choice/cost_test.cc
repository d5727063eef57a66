#include "trireme/comm/choice/cost.h"

#include <gtest/gtest.h>

namespace trireme::inline v0::comm {
namespace {

plan::CostShape all_reduce_shape(const char* name, int size) {
  return shape_of(*find_algorithm(OpKind::AllReduce, name), size, static_cast<std::uint32_t>(size));
}

// Patarasuk and Yuan 2009: 2(n-1) rounds of 1/n of the buffer. With two ranks, the two leaves are
// siblings, so there are no extra terms (docs/numerics.md).
TEST(Cost, RingOfTwo) {
  const plan::CostShape shape = all_reduce_shape("ring", 2);
  EXPECT_EQ(shape.rounds, 2);
  EXPECT_DOUBLE_EQ(shape.messages, 2);
  EXPECT_DOUBLE_EQ(shape.sent, 1);
  EXPECT_DOUBLE_EQ(shape.added, 0.5);
}

TEST(Cost, NaiveSendsEverythingToEveryone) {
  for (int size : {2, 3, 5, 8}) {
    const plan::CostShape shape = all_reduce_shape("naive", size);
    EXPECT_EQ(shape.rounds, 1);
    EXPECT_DOUBLE_EQ(shape.messages, size - 1);
    EXPECT_DOUBLE_EQ(shape.sent, size - 1);
    EXPECT_DOUBLE_EQ(shape.added, size - 1);
  }
}

// ceil(log2 n) rounds, each of the whole buffer.
TEST(Cost, BinomialBroadcastIsAsDeepAsItsTree) {
  for (const auto& [size, depth] : {std::pair(2, 1), {3, 2}, {4, 2}, {5, 3}, {8, 3}}) {
    const auto shape = shape_of(*find_algorithm(OpKind::Broadcast, "binomial"), size, 1, 0);
    EXPECT_EQ(shape.rounds, depth) << size;
    EXPECT_DOUBLE_EQ(shape.sent, depth) << size;
    EXPECT_DOUBLE_EQ(shape.added, 0) << size;
  }
}

TEST(Cost, PairwiseMovesEveryPieceOnce) {
  const auto entry = *find_algorithm(OpKind::AllGather, "pairwise");
  const Program program = record(entry.name, entry.generator, 4);
  for (double sent :
       buffers_sent(resolve(entry.name, program, layout_of(OpKind::AllGather, 4, 1)))) {
    EXPECT_DOUBLE_EQ(sent, 0.75);
  }
}

}  // namespace
}  // namespace trireme::inline v0::comm
