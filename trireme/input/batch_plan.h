// How samples become global batches and micro-batches, and which of them a rank computes. Both
// batches() and Sampler use these functions. Pure functions, no LibTorch.
//
// A global batch of `count` samples has ceil(count / micro) micro-batches; only the last may be
// short. The last global batch of an epoch may be short, too; it is kept.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/kernel/assignment.h"

namespace trireme::inline v0::input {

struct GlobalBatch {
  std::int64_t epoch = 0;
  std::int64_t first = 0;  // position in the epoch's order; endless data: from the start
  std::int64_t count = 0;  // samples
  bool last_of_epoch = false;
};

/// Global batches in an epoch of `n` samples.
std::int64_t batches_per_epoch(std::int64_t n, std::int64_t batch);

/// Global batch `number`, counted from the start. `n`: samples in an epoch; 0 = endless.
GlobalBatch global_batch(std::int64_t number, std::int64_t n, std::int64_t batch);

struct MicroRange {
  std::uint32_t index = 0;  // in the global batch
  std::int64_t first = 0;   // position in the epoch's order
  std::int64_t count = 0;   // samples
};

std::uint32_t num_micro_batches(const GlobalBatch& batch, std::int64_t micro);

/// The micro-batches of rank `rank`, ascending; empty if it has no share.
std::vector<MicroRange> share_of(const GlobalBatch& batch, std::int64_t micro,
                                 const kernel::Assignment& assignment, int rank);

/// Throws ConfigError, with the arithmetic, if micro does not divide batch, or if the first batch
/// has fewer micro-batches than there are ranks. `n`: samples in an epoch, which may be fewer than
/// `batch`; 0 = endless.
void check_batch(std::int64_t batch, std::int64_t micro, int size, std::int64_t n = 0);

}  // namespace trireme::inline v0::input
