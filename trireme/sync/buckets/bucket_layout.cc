#include "trireme/sync/buckets/bucket_layout.h"

#include <map>

namespace trireme::inline v0::parallel {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t padded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Which uses go into which bucket. Sizes are those of whole parameters, whoever owns them.
void pack(std::span<const Accumulated> uses, std::int64_t bucket_bytes, BucketLayout& layout) {
  layout.bucket_of_use.resize(uses.size());
  std::size_t filled = 0;  // bytes of the last bucket
  for (std::size_t use = uses.size(); use-- > 0;) {
    const std::size_t bytes = static_cast<std::size_t>(uses[use].count) * size_of(uses[use].sum);
    const bool open =
        !layout.buckets.empty() && layout.buckets.back().sum == uses[use].sum &&
        (bytes == 0 || filled == 0 || filled + bytes <= static_cast<std::size_t>(bucket_bytes));
    if (!open) {
      layout.buckets.push_back({.sum = uses[use].sum});
      filled = 0;
    }
    layout.buckets.back().uses.push_back(static_cast<std::uint32_t>(use));
    layout.bucket_of_use[use] = static_cast<std::uint32_t>(layout.buckets.size() - 1);
    filled += padded(bytes);
  }
}

}  // namespace

BucketLayout make_bucket_layout(std::span<const Accumulated> uses,
                                std::span<const std::uint32_t> parameter_of,
                                std::span<const std::vector<Piece>> pieces,
                                std::int64_t bucket_bytes) {
  BucketLayout layout;
  pack(uses, bucket_bytes, layout);
  layout.places.resize(uses.size());
  std::vector<std::map<std::uint32_t, Piece>> piece_of(pieces.size());
  for (std::size_t owner = 0; owner < pieces.size(); ++owner)
    for (const Piece& piece : pieces[owner]) piece_of[owner][piece.parameter] = piece;
  for (std::uint32_t number = 0; number < layout.buckets.size(); ++number) {
    BucketLayout::Bucket& bucket = layout.buckets[number];
    for (std::size_t owner = 0; owner < pieces.size(); ++owner) {
      bucket.begin.push_back(bucket.count);
      for (const std::uint32_t use : bucket.uses) {
        const auto found = piece_of[owner].find(parameter_of[use]);
        if (found == piece_of[owner].end()) continue;
        const Piece& piece = found->second;
        layout.places[use].push_back({number, static_cast<std::uint32_t>(bucket.parts.size())});
        bucket.parts.push_back(
            {use, static_cast<int>(owner), piece.begin, piece.end, bucket.count});
        const std::size_t width = size_of(bucket.sum);
        bucket.count += padded(static_cast<std::size_t>(piece.size()) * width) / width;
      }
    }
    bucket.begin.push_back(bucket.count);
  }
  return layout;
}

}  // namespace trireme::inline v0::parallel
