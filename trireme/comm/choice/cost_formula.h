// The costs of the algorithms that ship, as formulas (docs/algorithms.md). A test compares them
// with the costs counted on the recorded programs (cost.h). Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "trireme/comm/op_kind.h"

namespace trireme::inline v0::comm {

struct AlgorithmCost {
  int rounds = 0;                  // the longest chain of messages
  double bytes_sent_max_rank = 0;  // bytes sent by the rank that sends most
  double bytes_added = 0;          // bytes of sums computed by the rank that adds most
};

/// The cost of algorithm `name` of `kind` on `size` ranks with one leaf each; empty if there is no
/// formula. `bytes` is the size of one rank's buffer for all_reduce, reduce, broadcast and
/// all_to_all, and of all pieces together for gather, scatter, all_gather and reduce_scatter.
/// `hosts`: as Algorithm::host_of_rank, with equally many ranks on each host.
std::optional<AlgorithmCost> cost_formula(OpKind kind, std::string_view name, int size,
                                          double bytes, int pieces = 1,
                                          const std::vector<int>& hosts = {});

}  // namespace trireme::inline v0::comm
