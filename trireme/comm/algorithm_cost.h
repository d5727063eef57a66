// What an algorithm costs: rounds, bytes and additions, counted from its routes; and the same as
// closed formulas (docs/algorithms.md), which the tests hold against the routes. The tuner, `auto`
// and `trireme show` use them. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "trireme/comm/op_kind.h"
#include "trireme/comm/route.h"

namespace trireme {
inline namespace v0 {
namespace comm {

struct AlgorithmCost {
  int rounds = 0;                  // the longest chain of messages
  double bytes_sent_max_rank = 0;  // what the rank that sends most sends
  double bytes_on_path = 0;  // sum over rounds of the most that a rank sends or receives in it
  double bytes_added = 0;    // results of additions on the rank that adds most

  /// alpha: seconds a round; beta: seconds a byte sent; gamma: seconds a byte added.
  double seconds(double alpha, double beta, double gamma) const noexcept {
    return rounds * alpha + bytes_on_path * beta + bytes_added * gamma;
  }
};

/// Counts what `routes` (of all ranks) do where every chunk has `chunk_bytes`.
AlgorithmCost cost_of(const std::vector<Route>& routes, double chunk_bytes);

/// The formula of an algorithm that ships, on `size` ranks with one leaf each. `bytes`: of the
/// whole buffer (all_reduce, reduce, broadcast: what every rank has; gather, scatter, all_gather,
/// reduce_scatter: all pieces together; all_to_all: what one rank sends and keeps). `hosts`: as
/// Algorithm::host_of_rank, equally many ranks on each. Empty where there is no formula.
std::optional<AlgorithmCost> cost_formula(OpKind kind, std::string_view name, int size,
                                          double bytes, int pieces = 1,
                                          const std::vector<int>& hosts = {});

}  // namespace comm
}  // namespace v0
}  // namespace trireme
