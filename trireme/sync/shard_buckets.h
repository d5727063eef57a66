// ShardBuckets: buckets (bucket_layout.h) in the order in which they are sent to the owners of
// their parameters. A bucket's elements are laid out owner by owner, so that one all_to_all_v moves
// every owner's part:
//
//     bucket 0   | owner 0: b[0 ...)  w[0, 4096) | owner 1: w[4096 ...) | ...
//
// A part is what one owner has of one use; each starts at a multiple of 64 bytes. A value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/sync/bucket_layout.h"
#include "trireme/sync/ownership.h"

namespace trireme::inline v0::parallel {

struct ShardBuckets {
  struct Part {
    std::uint32_t use = 0;
    int owner = 0;
    std::int64_t begin = 0, end = 0;  // elements of the parameter
    std::size_t offset = 0;           // elements within the bucket
    std::size_t size() const noexcept { return static_cast<std::size_t>(end - begin); }
  };
  struct Bucket {
    DType sum = DType::F32;
    std::size_t count = 0;            // elements, gaps included
    std::vector<std::size_t> begin;   // owner r has elements [begin[r], begin[r + 1])
    std::vector<Part> parts;          // by owner
    std::vector<std::uint32_t> uses;  // descending
    std::size_t of(int owner) const {
      const auto r = static_cast<std::size_t>(owner);
      return begin[r + 1] - begin[r];
    }
    std::size_t bytes() const noexcept { return count * size_of(sum); }
  };
  struct PartPlace {
    std::uint32_t bucket = 0, part = 0;
  };
  std::vector<Bucket> buckets;
  std::vector<std::vector<PartPlace>> parts_of_use;
  std::vector<std::uint32_t> bucket_of_use;
};

/// `parameter_of[use]` is the parameter that each use adds to; `pieces` as Ownership::pieces().
ShardBuckets make_shard_buckets(std::span<const Accumulated> uses,
                                std::span<const std::uint32_t> parameter_of,
                                std::span<const std::vector<Piece>> pieces,
                                std::int64_t bucket_bytes);

}  // namespace trireme::inline v0::parallel
