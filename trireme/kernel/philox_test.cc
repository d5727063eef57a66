#include "trireme/kernel/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace trireme::kernel {
namespace {

// The known answers of the authors' Random123 library (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, PhiloxBlock{}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox(~std::uint64_t{0}, PhiloxBlock{kOnes, kOnes, kOnes, kOnes}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, PhiloxBlock{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, NamesHaveStreamsOfTheirOwn) {
  std::set<std::uint64_t> streams;
  for (int i = 0; i < 1000; ++i)
    streams.insert(stream_of("layer." + std::to_string(i) + ".weight"));
  EXPECT_EQ(streams.size(), 1000u);
  EXPECT_NE(philox(1, stream_of("a"), 0), philox(1, stream_of("b"), 0));
  EXPECT_NE(philox(1, stream_of("a"), 0), philox(2, stream_of("a"), 0));
}

TEST(Philox, UnitsStayInTheirIntervals) {
  EXPECT_GT(open_unit(0), 0.0f);
  EXPECT_EQ(open_unit(0xffffffff), 1.0f);
  EXPECT_EQ(unit(0), 0.0f);
  EXPECT_LT(unit(0xffffffff), 1.0f);
}

}  // namespace
}  // namespace trireme::kernel
