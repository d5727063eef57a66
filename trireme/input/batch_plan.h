// How samples become global batches and micro-batches, and which of them a rank computes. The one
// definition, for batches() (door b) and for the Sampler (door a). Pure functions, no LibTorch.
//
// A global batch of `count` samples has ceil(count / micro) micro-batches; only the last may be
// short. The last global batch of an epoch may be short, too; it is kept.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/kernel/assignment.h"

namespace trireme {
inline namespace v0 {
namespace input {

struct GlobalBatch {
  std::int64_t epoch = 0;
  std::int64_t first = 0;  // position in the epoch's order; endless data: since the start
  std::int64_t count = 0;  // samples
  bool last_of_epoch = false;
};

/// Global batches in an epoch of `n` samples.
std::int64_t batches_per_epoch(std::int64_t n, std::int64_t batch);

/// Global batch `number` since the start. `n` samples an epoch; 0 = endless.
GlobalBatch global_batch(std::int64_t number, std::int64_t n, std::int64_t batch);

struct MicroRange {
  std::uint32_t index = 0;  // in the global batch
  std::int64_t first = 0;   // position in the epoch's order
  std::int64_t count = 0;   // samples
};

std::uint32_t num_micro_batches(const GlobalBatch& batch, std::int64_t micro);

/// Rank `rank`'s micro-batches, ascending; none where it has no share.
std::vector<MicroRange> share_of(const GlobalBatch& batch, std::int64_t micro,
                                 const kernel::Assignment& assignment, int rank);

/// Throws ConfigError, with the arithmetic, where micro does not divide batch, or where there are
/// more ranks than micro-batches in a batch of `batch` samples (n > 0: or in an epoch's first).
void check_batch(std::int64_t batch, std::int64_t micro, int size, std::int64_t n = 0);

}  // namespace input
}  // namespace v0
}  // namespace trireme
