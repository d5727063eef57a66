// Measures a group: how long its all-reduces take, and alpha, beta and gamma of its link. All ranks
// must call the same functions with the same arguments. Time is the Waiter's, so a simulated
// network is measured on its virtual clock. Errors: see Communicator.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "trireme/comm/choice/measure.h"
#include "trireme/comm/communicator.h"
#include "trireme/plan/tuning.h"

namespace trireme::inline v0::comm {

struct TuneOptions {
  std::vector<std::size_t> sizes = {8, 512, 4096, 32768, 262144, 2097152, 16777216};  // bytes
  Duration budget = std::chrono::milliseconds(60);  // for one algorithm and size
  /// Called on rank 0 with what is measured next.
  std::function<void(std::string_view)> progress = nullptr;
};

/// Measures alpha and beta with a ping-pong between ranks 0 and 1 (Hockney 1994), and gamma with a
/// local addition. The same on all ranks; all zero for a group of one.
plan::LinkCost measure_link(Communicator& group, Duration budget);

/// Measures the link, and every all_reduce algorithm at every size, on fp32 in arena memory. Leaves
/// out an algorithm once it was a hundred times slower than the best at a smaller size.
plan::Tuning tune(Communicator& group, const TuneOptions& options = {});

}  // namespace trireme::inline v0::comm
