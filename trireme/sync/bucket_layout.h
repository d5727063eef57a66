// Buckets: parameters packed into pieces of about one size, so that a reduction starts as soon as
// the backward pass has filled one, and small parameters share a message.
//
// Parameters go in reverse order, which is about the order in which backward produces them; each
// starts at a multiple of 64 bytes. Pure functions and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/dtype.h"

namespace trireme::inline v0::parallel {

/// One accumulator: a parameter as one block uses it.
struct Accumulated {
  std::string name;        // for messages
  std::int64_t count = 0;  // elements
  DType sum = DType::F32;  // F32, or F64 for fp64 parameters
  std::int64_t rows = 1;   // the first dimension of a matrix or more; 1 for vectors and scalars
};

struct BucketLayout {
  struct Entry {
    std::uint32_t parameter = 0;
    std::size_t offset = 0, count = 0;  // elements within the bucket
  };
  struct Bucket {
    DType sum = DType::F32;
    std::size_t count = 0;  // elements, gaps included
    std::vector<Entry> entries;
    std::size_t bytes() const noexcept { return count * size_of(sum); }
  };
  struct Place {
    std::uint32_t bucket = 0, entry = 0;
  };
  std::vector<Bucket> buckets;
  std::vector<Place> place_of;  // per parameter
};

/// A bucket is closed when the next parameter would exceed `bucket_bytes` or has another type. A
/// larger parameter has its own bucket; one without elements joins the last bucket.
BucketLayout make_bucket_layout(std::span<const Accumulated> parameters, std::int64_t bucket_bytes);

}  // namespace trireme::inline v0::parallel
