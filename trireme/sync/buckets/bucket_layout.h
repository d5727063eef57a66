// BucketLayout: gradients are reduced in buckets of adjacent parameters. From the last parameter to
// the first, because backward produces them in about that order, parameters are packed into buckets
// of one element type. Within a bucket elements are laid out owner by owner, so that one
// all_to_all_v sends every owner its part (with one owner: the whole bucket):
//
//     bucket 0   | owner 0: b[0 ...)  w[0, 4096) | owner 1: w[4096 ...) | ...
//
// A part is what one owner has of one use; each starts at a multiple of 64 bytes. A value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/sync/levels/ownership.h"

namespace trireme::inline v0::parallel {

/// One accumulator: a parameter as one block uses it.
struct Accumulated {
  std::string name;        // for messages
  std::int64_t count = 0;  // elements
  DType sum = DType::F32;  // F32, or F64 for fp64 parameters
  std::int64_t rows = 1;   // the first dimension of a matrix or more; 1 for vectors and scalars
};

struct BucketLayout {
  struct OwnedRange {
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
    std::vector<OwnedRange> parts;    // by owner
    std::vector<std::uint32_t> uses;  // descending
    std::size_t begin_of(int owner) const { return begin[static_cast<std::size_t>(owner)]; }
    std::size_t of(int owner) const { return begin_of(owner + 1) - begin_of(owner); }
    std::size_t bytes() const noexcept { return count * size_of(sum); }
  };
  struct RangeIndex {
    std::uint32_t bucket = 0, part = 0;
  };
  std::vector<Bucket> buckets;
  std::vector<std::vector<RangeIndex>> places;  // per use: its parts, by owner
  std::vector<std::uint32_t> bucket_of_use;

  const OwnedRange& part(const RangeIndex& place) const {
    return buckets[place.bucket].parts[place.part];
  }
};

/// A bucket is closed when the next use would exceed `bucket_bytes` or has another type. A larger
/// parameter has its own bucket; one without elements joins the last bucket. `parameter_of[use]` is
/// the parameter that each use adds to; `pieces[r]` is what owner r has (Ownership::pieces()).
BucketLayout make_bucket_layout(std::span<const Accumulated> uses,
                                std::span<const std::uint32_t> parameter_of,
                                std::span<const std::vector<Piece>> pieces,
                                std::int64_t bucket_bytes);

}  // namespace trireme::inline v0::parallel
