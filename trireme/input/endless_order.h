// EndlessOrder: maps sample numbers 0, 1, 2, ... to records, epoch after epoch without an end. The
// seed decides the order of each epoch. Thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace trireme::inline v0::input {

class EndlessOrder {
 public:
  EndlessOrder(std::int64_t records, std::uint64_t seed) : records_(records), seed_(seed) {}
  /// 0 ... records - 1; `sample` >= 0.
  std::int64_t record(std::int64_t sample) const;

 private:
  const std::int64_t records_;
  const std::uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, std::vector<std::int64_t>> orders_;  // of the last epochs
};

}  // namespace trireme::inline v0::input
