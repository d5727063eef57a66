// Measuring a group: how long its collectives take, and α, β, γ of its link. Collective: all ranks
// call the same functions with the same arguments. Time is the Waiter's, so a simulated network is
// measured on its virtual clock. Errors are Communicator's.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "trireme/comm/choice/measure.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/op_kind.h"
#include "trireme/plan/tuning.h"

namespace trireme {
inline namespace v0 {
namespace comm {

struct TuneOptions {
  std::vector<std::size_t> sizes = {8, 512, 4096, 32768, 262144, 2097152, 16777216};  // bytes
  Duration budget = std::chrono::milliseconds(60);  // for one algorithm and size
  /// Told what is measured next, on rank 0.
  std::function<void(std::string_view)> progress = nullptr;
};

/// α, β by a ping-pong between ranks 0 and 1 (Hockney 1994), γ by adding; the same on all ranks.
/// A group of one has no link: zeros.
plan::LinkCost measure_link(Communicator& group, Duration budget);

/// Every algorithm of all_reduce at every size, as fp32 in arena memory, and the link. An algorithm
/// that was a hundred times slower than the best at the last size is not measured at larger ones.
plan::Tuning tune(Communicator& group, const TuneOptions& options = {});

}  // namespace comm
}  // namespace v0
}  // namespace trireme
