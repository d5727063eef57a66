#include "trireme/sync/buckets/bucket_layout.h"

#include <gtest/gtest.h>

namespace trireme::bucket_layout_test {
namespace {

using parallel::Accumulated;
using parallel::BucketLayout;

// One owner has everything; each use is a parameter of its own.
BucketLayout layout_of(const std::vector<Accumulated>& uses, std::int64_t bucket_bytes) {
  std::vector<std::uint32_t> parameter_of;
  std::vector<std::vector<parallel::Piece>> pieces(1);
  for (const Accumulated& use : uses) {
    pieces[0].push_back({static_cast<std::uint32_t>(parameter_of.size()), 0, use.count});
    parameter_of.push_back(pieces[0].back().parameter);
  }
  return parallel::make_bucket_layout(uses, parameter_of, pieces, bucket_bytes);
}

TEST(BucketLayout, PacksInReverseOrderAlignedAndBySize) {
  const std::vector<Accumulated> parameters = {{"a", 1000}, {"b", 3}, {"c", 17}, {"d", 2}};
  const auto layout = layout_of(parameters, 512);
  ASSERT_EQ(layout.buckets.size(), 2u);
  ASSERT_EQ(layout.buckets[0].parts.size(), 3u);
  EXPECT_EQ(layout.buckets[0].parts[0].use, 3u);
  EXPECT_EQ(layout.buckets[0].parts[1].offset, 16u);  // 64 bytes
  EXPECT_EQ(layout.buckets[0].parts[2].offset, 48u);
  EXPECT_EQ(layout.buckets[0].count, 64u);
  EXPECT_EQ(layout.bucket_of_use[0], 1u);
  EXPECT_EQ(layout.places[1][0].part, 2u);
}

// For example another rank's experts: nothing is sent only for them.
TEST(BucketLayout, WhatIsEmptyHasNoBucketOfItsOwn) {
  const std::vector<Accumulated> parameters = {{"a", 1000}, {"b", 0}, {"c", 1000}, {"d", 0}};
  const auto layout = layout_of(parameters, 512);
  ASSERT_EQ(layout.buckets.size(), 2u);
  EXPECT_EQ(layout.buckets[0].count, 1008u);
  EXPECT_EQ(layout.buckets[0].parts.size(), 3u);  // d, c, b
  EXPECT_EQ(layout.buckets[1].count, 1008u);
}

TEST(BucketLayout, TypesDoNotShareABucket) {
  const std::vector<Accumulated> parameters = {
      {"a", 4, DType::F32}, {"b", 4, DType::F64}, {"c", 4, DType::F32}};
  const auto layout = layout_of(parameters, 1 << 20);
  ASSERT_EQ(layout.buckets.size(), 3u);
  EXPECT_EQ(layout.buckets[1].count, 8u);
}

}  // namespace
}  // namespace trireme::bucket_layout_test
