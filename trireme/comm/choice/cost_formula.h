// What the algorithms that ship cost, as closed formulas (docs/algorithms.md). A test holds them
// against what comm/cost.h counts on the recorded programs. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "trireme/comm/op_kind.h"

namespace trireme {
inline namespace v0 {
namespace comm {

struct AlgorithmCost {
  int rounds = 0;                  // the longest chain of messages
  double bytes_sent_max_rank = 0;  // what the rank that sends most sends
  double bytes_added = 0;          // results of additions on the rank that adds most
};

/// The cost of algorithm `name` of `kind` on `size` ranks with one leaf each. `bytes`: of the whole
/// buffer (all_reduce, reduce, broadcast: what every rank has; gather, scatter, all_gather,
/// reduce_scatter: all pieces together; all_to_all: what one rank sends and keeps). `hosts`: as
/// Algorithm::host_of_rank, equally many ranks on each. Empty where there is no formula.
std::optional<AlgorithmCost> cost_formula(OpKind kind, std::string_view name, int size,
                                          double bytes, int pieces = 1,
                                          const std::vector<int>& hosts = {});

}  // namespace comm
}  // namespace v0
}  // namespace trireme
