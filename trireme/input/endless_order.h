// EndlessOrder: records that are gone through for ever, each epoch in an order of its own drawn by
// a seed. Sample i is a record, whoever asks. Thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace input {

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

}  // namespace input
}  // namespace v0
}  // namespace trireme
