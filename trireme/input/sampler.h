// Sampler: which samples this rank takes, in one global order that does not depend on the rank
// count. For torch::data::make_data_loader (door a) and for batches() (door b).
//
// The order is a function of (seed, epoch, global sample index). The loader's batch size is the
// micro-batch. A new order comes each epoch without a call. A short last batch is kept and
// weighted. A Sampler is a handle: copies share one state (the loader holds one), and its saved
// position counts what step() consumed, not what workers prefetched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/job/job.h"
#include "trireme/tensor/state.h"

namespace trireme {
inline namespace v0 {

struct SamplerOptions {
  std::int64_t batch = 0;  // global batch, samples
  std::uint64_t seed = 1;
  bool shuffle = true;
  bool follow = true;  // DataParallel of the same Job follows it; false for evaluation
};

/// The global order of epoch `epoch`: a permutation of 0 … n-1, or identity.
std::vector<std::int64_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch,
                                      bool shuffle);

// class Sampler (a torch::data::samplers::Sampler<> with micro-batches as requests) is in
// input/loader_sampler.h, which includes LibTorch's sampler header; trireme.h brings it.

}  // namespace v0
}  // namespace trireme
