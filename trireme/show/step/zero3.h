// A ZeRO-3 step recorded on simulated ranks: which blocks had whole weights at each moment, which
// gradient buckets were sent and reduced, and how many bytes each rank held. `trireme show zero3`
// draws it (cli/torch/show/record_zero3.h records it). Plain values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::inline v0::show {

/// The state of a rank while one block computes; the last moment is after the last block.
struct Zero3Moment {
  std::string name;                                // "F0", "B3", "F1.1" (second round); "end"
  int block = -1;                                  // the block that computes
  std::vector<std::uint32_t> whole;                // blocks with whole weights, or being gathered
  std::vector<std::uint32_t> freed;                // blocks freed since the moment before
  std::vector<std::uint32_t> sent, added;          // buckets sent and reduced during the moment
  std::size_t weight_bytes = 0, bucket_bytes = 0;  // peak bytes, without the local shard
};

struct Zero3Recording {
  int ranks = 1, blocks = 1, rounds = 1;
  std::size_t block_bytes = 0, own_bytes = 0, model_bytes = 0;  // of weights
  std::vector<std::vector<Zero3Moment>> moments;                // [rank]
  std::size_t peak(int rank) const;  // bytes of weights and buckets, without the local shard
};

std::string name_of(const Zero3Recording& recording);
std::string heading(const Zero3Recording& recording);
/// The grid of one rank: one column for each of its first `moments` moments.
std::string grid(const Zero3Recording& recording, int rank, std::size_t moments);
std::string text_of(const Zero3Recording& recording);
std::string json_of(const Zero3Recording& recording);
std::string svg_of(const Zero3Recording& recording);
std::string html_of(const Zero3Recording& recording);

}  // namespace trireme::inline v0::show
