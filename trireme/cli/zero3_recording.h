// `trireme show zero3`: one step of ZeRO-3 on simulated ranks, as it was recorded: which blocks'
// weights were whole when, which buckets of gradients were sent and added up, and what each rank
// held. The ranks run the production code (Strategy over comm::simulate) on a stack of equal
// layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace cli {

/// A rank's memory while one block computes; the last moment is after the last block.
struct Zero3Moment {
  std::string name;                                // "F0", "B3", "F1 of 2"; "end"
  int block = -1;                                  // that computes
  std::vector<std::uint32_t> whole;                // blocks whose weights are here or on their way
  std::vector<std::uint32_t> freed;                // since the moment before
  std::vector<std::uint32_t> sent, added;          // buckets, in it
  std::size_t weight_bytes = 0, bucket_bytes = 0;  // the most in it, beside the own part
};

struct Zero3Recording {
  int ranks = 1, blocks = 1, rounds = 1;
  std::size_t block_bytes = 0, own_bytes = 0, model_bytes = 0;  // of weights
  std::vector<std::vector<Zero3Moment>> moments;                // [rank]
  std::size_t peak(int rank) const;  // of weights and buckets, beside the own part
};

struct Zero3Options {
  int ranks = 4, blocks = 4;
  int rounds = 1;  // micro-batches of each rank
  std::uint64_t seed = 1;
};

/// ConfigError where ranks, blocks or rounds are out of range.
Zero3Recording record_zero3(const Zero3Options& options);

std::string name_of(const Zero3Recording& recording);
std::string heading(const Zero3Recording& recording);
/// The grid of one rank, a column a moment up to, not with, `moments`.
std::string grid(const Zero3Recording& recording, int rank, std::size_t moments);
std::string text_of(const Zero3Recording& recording);
std::string json_of(const Zero3Recording& recording);
std::string svg_of(const Zero3Recording& recording);
std::string html_of(const Zero3Recording& recording);

}  // namespace cli
}  // namespace v0
}  // namespace trireme
