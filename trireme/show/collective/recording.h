// Recording: what every rank of a collective sent, received and added, step by step, in one real
// run over the simulated network.
//
// The ranks run the production code (Communicator, engine, executor) on integers that identify
// contributions: rank r contributes 8^r, so octal 11 is the sum 0+1, and a digit 2 shows a
// contribution that was added twice. Nothing is computed from the algorithm; the figures are those
// of the run. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/calls/op_kind.h"
#include "trireme/comm/rounds/registry.h"

namespace trireme::inline v0::show {

/// The ranks whose contributions a value sums, ascending; a rank that is added twice appears twice.
using Parts = std::vector<int>;

/// The content of a rank's chunk. Terms whose sibling of the tree sum is elsewhere stay separate.
using Cell = std::vector<Parts>;

struct Message {
  int from = 0, to = 0, chunk = 0;
  bool copy = false;  // replaces the receiver's content
  bool read = false;  // the receiver read it from the sender's memory
  Parts parts;
  std::size_t bytes = 0;
};

/// Ranks proceed through their rounds independently. A step holds the rounds that can end together:
/// each after the previous round of its rank, and after the rounds that sent what it received.
struct Step {
  std::vector<std::vector<Cell>> cells;  // [rank][chunk], at the end of the step
  std::vector<Message> messages;         // that arrived in the step
  std::vector<std::size_t> added;        // [rank] bytes
};

struct Recording {
  comm::OpKind kind = comm::OpKind::AllReduce;
  std::string algorithm, about;
  int ranks = 1, root = 0, num_chunks = 1;
  std::vector<int> host_of_rank;
  std::size_t buffer_bytes = 0;          // S: the whole buffer
  std::vector<Step> steps;               // steps[0]: before the first round
  std::vector<std::vector<Parts>> out;   // [rank][chunk] of the caller's memory; empty: unused
  std::vector<std::vector<Parts>> want;  // [rank][chunk] expected; empty: not checked

  int rounds() const noexcept { return static_cast<int>(steps.size()) - 1; }
  std::vector<std::size_t> sent() const;  // [rank] bytes; direct: written to others' memory
  std::vector<std::size_t> read() const;  // [rank] bytes out of others' memory
  /// One sentence for each chunk whose final content is wrong.
  std::vector<std::string> faults() const;
};

struct RecordOptions {
  comm::OpKind kind = comm::OpKind::AllReduce;
  std::string algorithm;
  int ranks = 4;
  int root = 0;            // if the collective has one
  int hosts = 1;           // neighbouring ranks share a host
  std::uint64_t seed = 1;  // of the simulated network
};

/// The most ranks whose contributions are distinguishable in a sum of 64 bits.
inline constexpr int kMostRanks = 20;

/// ConfigError if the algorithm is not registered or refuses the options (comm/rounds/route.h), or
/// if ranks, root or hosts are out of range.
Recording record(const RecordOptions& options);

/// The number of each rank's host.
std::vector<int> hosts_of(int ranks, int hosts);

/// "0+1+2", long runs as "0+..+7".
std::string text_of(const Parts& parts);
/// "0+1, 3": separate terms; "" if the cell is empty.
std::string text_of(const Cell& cell);

}  // namespace trireme::inline v0::show
