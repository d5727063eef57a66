#include "trireme/sync/bucket_layout.h"

#include <gtest/gtest.h>

namespace trireme::bucket_layout_test {
namespace {

TEST(BucketLayout, PacksInReverseOrderAlignedAndBySize) {
  const std::vector<parallel::Accumulated> parameters = {
      {"a", 1000}, {"b", 3}, {"c", 17}, {"d", 2}};
  const auto layout = parallel::make_bucket_layout(parameters, 512);
  ASSERT_EQ(layout.buckets.size(), 2u);
  ASSERT_EQ(layout.buckets[0].entries.size(), 3u);
  EXPECT_EQ(layout.buckets[0].entries[0].parameter, 3u);
  EXPECT_EQ(layout.buckets[0].entries[1].offset, 16u);  // 64 bytes
  EXPECT_EQ(layout.buckets[0].entries[2].offset, 48u);
  EXPECT_EQ(layout.buckets[0].count, 64u);
  EXPECT_EQ(layout.place_of[0].bucket, 1u);
  EXPECT_EQ(layout.place_of[1].entry, 2u);
}

// For example another rank's experts: nothing is sent only for them.
TEST(BucketLayout, WhatIsEmptyHasNoBucketOfItsOwn) {
  const std::vector<parallel::Accumulated> parameters = {
      {"a", 1000}, {"b", 0}, {"c", 1000}, {"d", 0}};
  const auto layout = parallel::make_bucket_layout(parameters, 512);
  ASSERT_EQ(layout.buckets.size(), 2u);
  EXPECT_EQ(layout.buckets[0].count, 1008u);
  EXPECT_EQ(layout.buckets[0].entries.size(), 3u);  // d, c, b
  EXPECT_EQ(layout.buckets[1].count, 1008u);
}

TEST(BucketLayout, TypesDoNotShareABucket) {
  const std::vector<parallel::Accumulated> parameters = {
      {"a", 4, DType::F32}, {"b", 4, DType::F64}, {"c", 4, DType::F32}};
  const auto layout = parallel::make_bucket_layout(parameters, 1 << 20);
  ASSERT_EQ(layout.buckets.size(), 3u);
  EXPECT_EQ(layout.buckets[1].count, 8u);
}

}  // namespace
}  // namespace trireme::bucket_layout_test
