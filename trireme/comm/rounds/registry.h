// The registry of algorithms, by collective and name: those that ship (one file each, and one line
// in algorithms/list.inc), and those that a program registers. Calls, `trireme show`, `trireme
// verify`, the tests and the tables in docs/algorithms.md all look them up here.
//
// Thread safe. An entry stays registered for the life of the process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/calls/op_kind.h"
#include "trireme/comm/rounds/algorithm.h"

namespace trireme::inline v0::comm {

struct AlgorithmCost {
  int rounds = 0;                  // the longest chain of messages
  double bytes_sent_max_rank = 0;  // bytes sent by the rank that sends most
  double bytes_added = 0;          // bytes of sums computed by the rank that adds most
};

/// `size` ranks with one leaf each. `bytes`: one rank's buffer for all_reduce, reduce, broadcast
/// and all_to_all, all pieces together for gather, scatter, all_gather and reduce_scatter.
struct CostCase {
  int size = 2;
  double bytes = 0;
  int pieces = 1;
  std::vector<int> hosts = {};  // as Algorithm::host_of_rank, with equally many ranks on each host
  double others() const noexcept { return double(size - 1) / size; }  // n-1 of n pieces
};

/// A row of the table in docs/algorithms.md. `when`: appended to the name, such as ", n = 2^k".
struct CostRow {
  std::string when, rounds, sent, added;
};

struct AlgorithmEntry {
  OpKind kind = OpKind::AllReduce;
  std::string name;   // "ring"
  std::string about;  // one line: what it does, rounds, bytes, source
  Generator generator;
  /// The cost as a formula, which a test compares with the cost counted on the recorded program
  /// (comm/choice/cost.h); null: there is none.
  AlgorithmCost (*cost)(const CostCase&) = nullptr;
  std::vector<CostRow> formulas = {};  // the same in words
  bool by_hosts = false;               // its rounds depend on which ranks share a host
};

/// Null if there is none.
const AlgorithmEntry* find_algorithm(OpKind kind, std::string_view name);
/// All algorithms of `kind`; those that ship come first.
std::vector<const AlgorithmEntry*> algorithms_of(OpKind kind);

/// False if a program registered it.
bool ships(const AlgorithmEntry& entry);

}  // namespace trireme::inline v0::comm
