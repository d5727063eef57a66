// The global order of samples, which does not depend on the number of ranks. Sampler and batches() both
// use this order: a function of (seed, epoch, position). Each epoch has a new order without a call.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::inline v0 {

/// The global order of epoch `epoch`: a permutation of 0 ... n-1, or the identity.
std::vector<std::int64_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch,
                                      bool shuffle);

}  // namespace trireme::inline v0
