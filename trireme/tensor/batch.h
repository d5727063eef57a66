// Batch: one rank's share of a global batch, cut into micro-batches.
//
// Micro-batches are numbered 0 ... total-1 over the global batch (docs/numerics.md); a rank holds
// those of contiguous_share(total, ranks, rank). Fields are named tensors whose first dim is the
// sample. A plain value.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/buffer.h"

namespace trireme::inline v0 {

struct MicroBatch {
  std::uint32_t index = 0;        // in the global batch
  std::int64_t first_sample = 0;  // global, within the epoch order
  std::int64_t count = 0;         // what the loss is averaged over: valid tokens or samples
  std::vector<std::pair<std::string, at::Tensor>>
      fields;  // "tokens" [b, T] int64, "targets" [b, T] int64, ...
  /// Throws ConfigError naming the fields that exist.
  const at::Tensor& field(std::string_view name) const;
};

struct Batch {
  std::vector<MicroBatch> micro;  // this rank's, ascending index; may be empty
  std::uint32_t total = 0;        // micro-batches in the global batch
  std::int64_t global_count = 0;  // sum of count over the global batch
  std::int64_t step = 0;
};

/// The micro-batch with its fields on `device`. Does not wait for copies from pinned memory.
MicroBatch on_device(MicroBatch micro, Device device);

}  // namespace trireme::inline v0
