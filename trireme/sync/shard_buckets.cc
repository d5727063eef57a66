#include "trireme/sync/shard_buckets.h"

#include <map>

namespace trireme::inline v0::parallel {

ShardBuckets make_shard_buckets(std::span<const Accumulated> uses,
                                std::span<const std::uint32_t> parameter_of,
                                std::span<const std::vector<Piece>> pieces,
                                std::int64_t bucket_bytes) {
  constexpr std::size_t kAlignment = 64;
  const BucketLayout layout = make_bucket_layout(uses, bucket_bytes);
  std::vector<std::map<std::uint32_t, Piece>> piece_of(pieces.size());
  for (std::size_t owner = 0; owner < pieces.size(); ++owner)
    for (const Piece& piece : pieces[owner]) piece_of[owner][piece.parameter] = piece;
  ShardBuckets result;
  result.parts_of_use.resize(uses.size());
  result.bucket_of_use.resize(uses.size());
  for (std::uint32_t number = 0; number < layout.buckets.size(); ++number) {
    ShardBuckets::Bucket bucket{.sum = layout.buckets[number].sum};
    const std::size_t step = kAlignment / size_of(bucket.sum);
    for (const BucketLayout::Entry& entry : layout.buckets[number].entries) {
      bucket.uses.push_back(entry.parameter);
      result.bucket_of_use[entry.parameter] = number;
    }
    for (std::size_t owner = 0; owner < pieces.size(); ++owner) {
      bucket.begin.push_back(bucket.count);
      for (const std::uint32_t use : bucket.uses) {
        const auto found = piece_of[owner].find(parameter_of[use]);
        if (found == piece_of[owner].end()) continue;
        const Piece& piece = found->second;
        result.parts_of_use[use].push_back(
            {number, static_cast<std::uint32_t>(bucket.parts.size())});
        bucket.parts.push_back(
            {use, static_cast<int>(owner), piece.begin, piece.end, bucket.count});
        bucket.count += (static_cast<std::size_t>(piece.size()) + step - 1) / step * step;
      }
    }
    bucket.begin.push_back(bucket.count);
    result.buckets.push_back(std::move(bucket));
  }
  return result;
}

}  // namespace trireme::inline v0::parallel
