// Route: a program with the terms filled in. Which leaf ranges every rank holds of every chunk is
// computed for all ranks at once, without data; so each rank knows the sizes of all its messages
// and the additions it has to make, and a program that adds wrongly is refused before it runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/program.h"
#include "trireme/kernel/tree_sum.h"

namespace trireme {
inline namespace v0 {
namespace comm {

struct Movement {
  int peer = 0, chunk = 0;
  bool copy = false, give = false;       // as in Transfer
  std::vector<kernel::LeafRange> nodes;  // ascending; one message each
};

struct RouteRound {
  std::vector<Movement> sends, receives;
  struct ChunkMerges {
    int chunk;
    std::vector<kernel::Merge> merges;
  };
  std::vector<ChunkMerges> merges;  // after all receives
  /// Counted over all ranks: the round of its sends, and that of the last message it waits for.
  int begin = 0, end = 0;
};

struct Route {
  int num_chunks = 1;
  bool pipelined = false;  // cut into Algorithm::pieces: runs over the whole buffer at once
  std::vector<std::vector<kernel::LeafRange>> initial;  // per chunk: what this rank starts with
  std::vector<bool> wanted;                             // per chunk: must end as the root here
  std::vector<RouteRound> rounds;
};

/// Who holds what at the beginning, and who must hold the whole sum of what at the end.
struct Layout {
  std::uint32_t total = 1;
  std::function<std::vector<kernel::LeafRange>(int rank, int chunk)> initial;
  std::function<bool(int rank, int chunk)> wanted;
};
Layout all_reduce_layout(int size, std::uint32_t total);
Layout broadcast_layout(int root);
Layout all_gather_layout();
Layout reduce_scatter_layout(int size);
Layout reduce_layout(int size, std::uint32_t total, int root);
Layout gather_layout(int root);
Layout scatter_layout(int root);
/// Chunk i*size + j is what rank i has for rank j.
Layout all_to_all_layout(int size);

/// Why a program was refused: for whoever draws it (`trireme verify`).
class RouteError : public ConfigError {
 public:
  struct Wait {  // rank is in `round` (0 is its first) and waits for `peer`
    int rank, round, peer, chunk;
    bool to_send;  // what the peer must do: send the chunk, or receive it
  };
  struct State {
    int rank = 0;                  // whose fault was seen
    std::vector<Wait> waits = {};  // of all ranks that cannot go on
    std::vector<std::vector<std::vector<kernel::LeafRange>>> held = {};  // [rank][chunk]
  };
  RouteError(std::string message, ErrorContext context, State state)
      : ConfigError(std::move(message), std::move(context)), state_(std::move(state)) {}
  const State& state() const noexcept { return state_; }

 private:
  State state_;
};

/// One route per rank. A send may wait until its receive is posted, and messages between two ranks
/// arrive in order. RouteError (naming `name`, rank, round and chunk) where under these rules the
/// program waits for ever, leaves a message unread or takes one for another, counts a leaf twice,
/// copies over what it sends, or ends without the sum.
std::vector<Route> resolve(std::string_view name, const Program& program, const Layout& layout);

/// How many chunk-sized terms `route` sends.
std::size_t terms_sent(const Route& route);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
