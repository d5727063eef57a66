// Recording: what every rank of a collective sent, received and added, step by step, in one real
// run over the simulated network.
//
// The ranks run the production code (Communicator, its engine, its executor) on small integers
// chosen so that a value tells whose parts it is the sum of: rank r brings 8^r, so 0+1 is octal 11
// and a part that was added twice is a 2. Nothing here is computed from the algorithm; the figures
// are those of the run. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/op_kind.h"
#include "trireme/comm/registry.h"

namespace trireme {
inline namespace v0 {
namespace show {

/// Ranks whose parts a value is the sum of, ascending; one that is in it twice stands there twice.
using Parts = std::vector<int>;

/// What a rank holds of a chunk: terms that have not met their siblings of the tree sum stay apart.
using Cell = std::vector<Parts>;

struct Message {
  int from = 0, to = 0, chunk = 0;
  bool copy = false;  // replaces what the receiver held
  bool read = false;  // the receiver took it out of the sender's memory
  Parts parts;
  std::size_t bytes = 0;
};

/// Ranks go through their rounds in their own time; a step holds the rounds that can end together:
/// each after the one before it on its rank, and after those that sent what it received.
struct Step {
  std::vector<std::vector<Cell>> cells;  // [rank][chunk], at the end of the step
  std::vector<Message> messages;         // that arrived in it
  std::vector<std::size_t> added;        // [rank] bytes
};

struct Recording {
  comm::OpKind kind = comm::OpKind::AllReduce;
  std::string algorithm, about;
  int ranks = 1, root = 0, num_chunks = 1;
  std::vector<int> host_of_rank;
  std::size_t buffer_bytes = 0;          // S: the whole
  std::vector<Step> steps;               // steps[0]: before the first round
  std::vector<std::vector<Parts>> out;   // [rank][chunk] of the caller's memory; empty: not wanted
  std::vector<std::vector<Parts>> want;  // [rank][chunk] what it must be; empty: not wanted

  int rounds() const noexcept { return static_cast<int>(steps.size()) - 1; }
  std::vector<std::size_t> sent() const;  // [rank] bytes; direct: written to others' memory
  std::vector<std::size_t> read() const;  // [rank] bytes out of others' memory
  /// A sentence for each chunk that does not end as it must.
  std::vector<std::string> faults() const;
};

struct RecordOptions {
  comm::OpKind kind = comm::OpKind::AllReduce;
  std::string algorithm;
  int ranks = 4;
  int root = 0;            // where the collective has one
  int hosts = 1;           // neighbours share one
  std::uint64_t seed = 1;  // of the simulated network
};

/// Ranks whose parts can be told apart in a sum of 64 bits.
inline constexpr int kMostRanks = 20;

/// ConfigError for an algorithm that is not registered, for ranks, root and hosts out of range, and
/// for what the algorithm itself is refused for (comm/route.h).
Recording record(const RecordOptions& options);

/// The number of each rank's host.
std::vector<int> hosts_of(int ranks, int hosts);

/// "0+1+2", long runs as "0+..+7".
std::string text_of(const Parts& parts);
/// "0+1, 3": terms that are held apart; "" where nothing is.
std::string text_of(const Cell& cell);

}  // namespace show
}  // namespace v0
}  // namespace trireme
