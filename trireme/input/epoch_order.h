// The global order of samples: a function of (seed, epoch, position), whatever the number of ranks.
// Sampler and batches() both use it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "trireme/kernel/philox.h"

namespace trireme::inline v0 {

/// The global order of epoch `epoch`: a permutation of 0 ... n-1, or the identity.
std::vector<std::int64_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch,
                                      bool shuffle);

namespace input {

/// A counter-based random integer: the same (seed, stream, index) gives the same number on any rank
/// and in any call order. Uniform in [0, bound), bound >= 1; the bias is below bound / 2^64 (Lemire
/// 2019, without the rejection).
inline std::uint64_t random_below(std::uint64_t bound, std::uint64_t seed, std::uint64_t stream,
                                  std::uint64_t index) noexcept {
  const kernel::PhiloxBlock words = kernel::philox(seed, stream, index);
  const std::uint64_t value = (std::uint64_t{words[0]} << 32) | words[1];
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(value) * bound) >> 64);
}

/// Maps sample numbers 0, 1, 2, ... to records: if `endless`, by one epoch_order() after the other;
/// otherwise sample i is record i. Thread safe.
class SampleOrder {
 public:
  SampleOrder(std::int64_t records, bool endless, std::uint64_t seed)
      : records_(records), endless_(endless), seed_(seed) {}
  /// Samples; 0: endless.
  std::int64_t size() const noexcept { return endless_ ? 0 : records_; }
  /// 0 ... records - 1. CheckFailure for a sample that does not exist.
  std::int64_t record(std::int64_t sample) const;

 private:
  const std::int64_t records_;
  const bool endless_;
  const std::uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, std::vector<std::int64_t>> orders_;  // of the last epochs
};

}  // namespace input
}  // namespace trireme::inline v0
