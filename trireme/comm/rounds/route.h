// Route: one rank's part of a program, with the terms filled in. resolve() computes, without data,
// which leaf ranges every rank holds of every chunk. So each rank knows its messages and additions
// in advance, and a program that adds wrongly is refused before it runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/calls/op_kind.h"
#include "trireme/comm/rounds/by_chunk.h"
#include "trireme/comm/rounds/program.h"
#include "trireme/kernel/tree_sum.h"

namespace trireme::inline v0::comm {

struct Movement {
  int peer = 0, chunk = 0;
  bool copy = false, give = false;       // as in Transfer
  std::vector<kernel::LeafRange> nodes;  // the terms, ascending; one message each
};

struct RouteRound {
  std::vector<Movement> sends, receives;
  struct ChunkMerges {
    int chunk;
    std::vector<kernel::Merge> merges;
  };
  std::vector<ChunkMerges> merges;  // after all receives
  /// Logical times: `begin` is one more than the previous round's end. `end` is the latest of
  /// `begin` and the begins of the rounds whose messages this one receives.
  int begin = 0, end = 0;
};

struct Route {
  int num_chunks = 1;
  bool pipelined = false;  // uses Algorithm::pieces, so the buffer is not cut into segments
  ByChunk<std::vector<kernel::LeafRange>> initial;  // the terms at the beginning
  std::vector<int> wanted;  // ascending: the chunks of which this rank needs the whole sum
  std::vector<RouteRound> rounds;
};

/// For each rank and chunk: the terms at the beginning, and whether it needs the sum at the end.
struct Layout {
  std::uint32_t total = 1;
  std::function<std::vector<kernel::LeafRange>(int rank, int chunk)> initial;
  std::function<bool(int rank, int chunk)> wanted;
  /// Ascending: the chunks of which the rank begins with terms or needs the sum. None: any chunk.
  std::function<std::vector<int>(int rank)> own = {};
};
/// The Layout of a collective. `leaves`: of the sum; ignored if `kind` does not reduce, and by
/// reduce_scatter, which has `size`. Chunk i*size + j of an all_to_all goes from rank i to rank j.
/// ConfigError if `kind` has no rounds.
Layout layout_of(OpKind kind, int size, const kernel::LeafShares& leaves, int root = 0);

/// A program was refused. Carries the state of all ranks, which `trireme verify` draws.
class RouteError : public ConfigError {
 public:
  struct Wait {  // `rank` waits for `peer` in its round `round`, counted from 0
    int rank, round, peer, chunk;
    bool to_send;  // what the peer must do: send the chunk, or receive it
  };
  struct State {
    int rank = 0;                  // the rank in which the fault was found
    std::vector<Wait> waits = {};  // of all ranks that are stuck
    int num_chunks = 0;
    std::vector<ByChunk<std::vector<kernel::LeafRange>>> held = {};  // [rank]
  };
  RouteError(std::string message, ErrorContext context, State state)
      : ConfigError(std::move(message), std::move(context)), state_(std::move(state)) {}
  const State& state() const noexcept { return state_; }

 private:
  State state_;
};

/// Returns one route per rank. Assumes that a send may block until its receive is posted, and that
/// messages between two ranks arrive in order. Throws RouteError, naming `name`, rank and chunk, if
/// the program deadlocks, leaves a message unreceived, receives another chunk than was sent, adds a
/// leaf twice, copies into a chunk while sending it, or ends without the whole sum.
std::vector<Route> resolve(std::string_view name, const Program& program, const Layout& layout);

/// The number of chunk-sized terms that `route` sends.
std::size_t terms_sent(const Route& route);

}  // namespace trireme::inline v0::comm
