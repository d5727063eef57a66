#include "trireme/sync/bucket_layout.h"

namespace trireme::inline v0::parallel {

BucketLayout make_bucket_layout(std::span<const Accumulated> parameters,
                                std::int64_t bucket_bytes) {
  constexpr std::size_t kAlignment = 64;
  BucketLayout layout;
  layout.place_of.resize(parameters.size());
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const Accumulated& parameter = parameters[i];
    const auto count = static_cast<std::size_t>(parameter.count);
    const std::size_t bytes = count * size_of(parameter.sum);
    const bool fits = !layout.buckets.empty() && (bytes == 0 || layout.buckets.back().count == 0 ||
                                                  layout.buckets.back().bytes() + bytes <=
                                                      static_cast<std::size_t>(bucket_bytes));
    const bool open = fits && layout.buckets.back().sum == parameter.sum;
    if (!open) layout.buckets.push_back({.sum = parameter.sum});
    BucketLayout::Bucket& bucket = layout.buckets.back();
    layout.place_of[i] = {static_cast<std::uint32_t>(layout.buckets.size() - 1),
                          static_cast<std::uint32_t>(bucket.entries.size())};
    bucket.entries.push_back({static_cast<std::uint32_t>(i), bucket.count, count});
    const std::size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    bucket.count += padded / size_of(parameter.sum);
  }
  return layout;
}

}  // namespace trireme::inline v0::parallel
