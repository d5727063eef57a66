// Program: a collective algorithm as a value. It lists, for each rank and round, which chunks the
// rank sends and receives, and with whom. It can be printed, verified, counted and executed.
//
// An algorithm is a function that is called once for every rank and records that rank's rounds in
// an Algorithm, much as in a textbook (ring.cc). It never sees data. The executor (ProgramRun)
// sends all terms that the rank holds of a chunk, and adds only siblings of the tree sum.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::inline v0 {
namespace comm {

/// A piece of the buffer; the same elements on all ranks.
struct Chunk {
  int index = 0;
};

struct Transfer {
  int peer = 0;
  int chunk = 0;
  bool copy = false;  // receives: replaces the terms that are held; else adds to them
  bool give = false;  // sends: the sender drops its terms
};

/// Sends take what is held when the round begins. The next round begins when all transfers ended.
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
  const std::vector<int> host_of_rank;  // number of each rank's host; all 0 if unknown
  /// The number of pieces into which a pipelined algorithm should cut its parts: 1 if small.
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
    /// Sends the chunk and drops what is held of it, for a tree whose sender does not need it.
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
  /// Sets the number of chunks (default: size). The same on all ranks.
  void chunks(int count) { num_chunks_ = count; }
  /// Chunk `index` modulo the number of chunks; negative indices count from the end.
  Chunk chunk(int index) const noexcept;
  /// Opens a round with one send.
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

/// Algorithm::pieces for a buffer of `bytes`. A piece is small enough to be added while it is in
/// the caches, and large enough that the latency of a round is negligible.
int pieces_for(std::size_t bytes, int size) noexcept;

/// Runs `generator` for every rank. ConfigError if the ranks disagree on the number of chunks, or
/// if a peer is out of range. `hosts`, `pieces`: as in Algorithm.
Program record(std::string_view name, const Generator& generator, int size, int root = 0,
               const std::vector<int>& hosts = {}, int pieces = 1);

}  // namespace comm
using comm::Algorithm;
}  // namespace trireme::inline v0
