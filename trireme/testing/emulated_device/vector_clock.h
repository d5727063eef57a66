// Which operations of every stream are known to be done before something. A plain value.
//
// The operations of a stream are numbered from 1. A clock that shows 5 for a stream covers its
// first five operations.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::inline v0::testing {

/// Streams of all devices are numbered together.
using StreamIndex = std::uint32_t;

/// The first `count` operations of a stream.
struct StreamPoint {
  StreamIndex stream = 0;
  std::uint64_t count = 0;
};

class VectorClock {
 public:
  std::uint64_t at(StreamIndex stream) const {
    return stream < counts_.size() ? counts_[stream] : 0;
  }
  bool covers(StreamPoint point) const { return at(point.stream) >= point.count; }

  void advance(StreamPoint point) {
    if (point.stream >= counts_.size()) counts_.resize(point.stream + 1, 0);
    counts_[point.stream] = std::max(counts_[point.stream], point.count);
  }

  /// Afterwards this clock covers all that `other` covers.
  void join(const VectorClock& other) {
    if (counts_.size() < other.counts_.size()) counts_.resize(other.counts_.size(), 0);
    for (std::size_t i = 0; i < other.counts_.size(); ++i)
      counts_[i] = std::max(counts_[i], other.counts_[i]);
  }

 private:
  std::vector<std::uint64_t> counts_;
};

}  // namespace trireme::inline v0::testing
