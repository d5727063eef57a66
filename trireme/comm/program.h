// Program: what an algorithm is. Per rank a list of rounds; per round what is sent to whom and what
// is received from whom, chunk by chunk. A value: printed, verified, counted and executed.
//
// An algorithm is a function that is called once for every rank and records that rank's rounds in
// an Algorithm; it reads like the textbook (ring.cc). It never sees data: the executor sends all
// terms of the chunk that the rank holds, and adds siblings of the tree sum only. Values.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace comm {

/// A piece of the buffer, the same on all ranks.
struct Chunk {
  int index = 0;
};

struct Transfer {
  int peer = 0;
  int chunk = 0;
  bool copy = false;  // receives: replace what is held, else add to it
  bool give = false;  // sends: hold it no longer
};

/// All sends see what was held when the round began; the next round begins when all is done.
struct Round {
  std::vector<Transfer> sends, receives;
};

struct Program {
  int num_chunks = 1;
  std::vector<std::vector<Round>> rounds_of_rank;
};

class Algorithm {
 public:
  const int rank, size;
  const int root;                       // broadcast, reduce, gather, scatter; else 0
  const std::vector<int> host_of_rank;  // number of each rank's host; all 0 where nobody said
  /// Into how many pieces a pipelined algorithm should cut each of its parts: 1 for small buffers.
  const int pieces;

  Algorithm(int own_rank, int num_ranks, int root_rank = 0, std::vector<int> hosts = {},
            int num_pieces = 1)
      : rank(own_rank),
        size(num_ranks),
        root(root_rank),
        host_of_rank(hosts.empty() ? std::vector<int>(num_ranks, 0) : std::move(hosts)),
        pieces(num_pieces),
        num_chunks_(num_ranks) {}

  class Step {
   public:
    Step& send(int peer, Chunk chunk);
    /// Sends, and drops what is held of the chunk: a part that goes up a tree without its sender.
    Step& give(int peer, Chunk chunk);
    Step& add_from(int peer, Chunk chunk);
    Step& copy_from(int peer, Chunk chunk);

   private:
    friend class Algorithm;
    Step(Algorithm& algorithm, std::size_t index) : algorithm_(algorithm), index_(index) {}
    Round& round() { return algorithm_.rounds_[index_]; }
    Algorithm& algorithm_;
    std::size_t index_;
  };

  int next() const noexcept { return (rank + 1) % size; }
  int prev() const noexcept { return (rank + size - 1) % size; }
  /// Into how many chunks the buffer is cut (default: size). The same on all ranks.
  void chunks(int count) { num_chunks_ = count; }
  /// Chunk `index` modulo the number of chunks; negative indices count from the end.
  Chunk chunk(int index) const noexcept;
  /// Opens a round that first sends.
  Step send(int peer, Chunk chunk) { return round().send(peer, chunk); }
  /// Opens an empty round.
  Step round();

  int num_chunks() const noexcept { return num_chunks_; }
  std::vector<Round> take() { return std::move(rounds_); }

 private:
  std::vector<Round> rounds_;
  int num_chunks_;
};

using Generator = std::function<void(Algorithm&)>;

/// Algorithm::pieces for a buffer of `bytes`: small enough that a piece is added while it is in the
/// caches, large enough that a round's latency does not show.
int pieces_for(std::size_t bytes, int size) noexcept;

/// Runs `generator` for every rank. ConfigError if the ranks disagree about the number of chunks or
/// a peer is out of range. `hosts`, `pieces`: as in Algorithm.
Program record(std::string_view name, const Generator& generator, int size, int root = 0,
               const std::vector<int>& hosts = {}, int pieces = 1);

}  // namespace comm
using comm::Algorithm;
}  // namespace v0
}  // namespace trireme
