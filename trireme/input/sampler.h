// The options of Sampler, and the global order of samples, which does not depend on the number of
// ranks. Sampler and batches() both use this order.
//
// The order is a function of (seed, epoch, position). Each epoch has a new order without a call. A
// short last batch is kept and weighted. The saved position of a Sampler counts what step()
// consumed, not what workers prefetched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/job/job.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0 {

struct SamplerOptions {
  std::int64_t batch = 0;  // global batch, samples
  std::uint64_t seed = 1;
  bool shuffle = true;
  bool follow = true;  // DataParallel of the same Job takes its plan; false for evaluation
};

/// The global order of epoch `epoch`: a permutation of 0 ... n-1, or the identity.
std::vector<std::int64_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch,
                                      bool shuffle);

// class Sampler is in input/loader_sampler.h, which needs LibTorch's sampler header.

}  // namespace trireme::inline v0
