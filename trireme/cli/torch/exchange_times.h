// The time of one synchronous exchange: all workers begin together with a gradient each, and it
// ends when the last one has the result: new weights from parameter servers, or the sum from an
// all-reduce. Predicted by formulas, simulated by the production code over links of a given cost,
// or measured over TCP on loopback.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trireme/cli/launch/own_run.h"
#include "trireme/plan/tuning.h"

namespace trireme::inline v0::cli {

/// A way to exchange gradients.
struct ExchangeWay {
  int servers = 0;         // 0: an all-reduce
  std::string all_reduce;  // its algorithm
};
/// "2 servers", "all-reduce ring".
std::string name_of(const ExchangeWay& way);

/// In seconds; 0 if one rank needs no all-reduce. Adding and updating are not counted: they take no
/// time on the simulated network.
double predicted_exchange(const ExchangeWay& way, const plan::LinkCost& link, int workers,
                          std::size_t bytes);
double simulated_exchange(const ExchangeWay& way, const plan::LinkCost& link, int workers,
                          std::size_t bytes);
/// The shortest of many exchanges, because other programs disturb them. Workers and servers are
/// threads of this process; the ranks of an all-reduce are processes that `runs` starts.
double measured_exchange(const ExchangeWay& way, int workers, std::size_t bytes, OwnRuns& runs);

/// The cost of a link here, from measured exchanges of one worker and one server.
plan::LinkCost measured_link(std::size_t bytes, OwnRuns& runs);

}  // namespace trireme::inline v0::cli
