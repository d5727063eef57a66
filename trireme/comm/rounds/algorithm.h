// Algorithm: the record of what one rank does in a collective, round by round. A function, called
// once for every rank, fills it in, much as in a textbook (algorithms/ring.cc). It never sees data;
// program.h makes a Program of the records. register_all_reduce() makes a user's all-reduce known
// to the library and to its commands.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
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

/// Sends take what is held when the round begins. The next round begins when all transfers end.
struct Round {
  std::vector<Transfer> sends, receives;
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
    Step& send(int peer, Chunk chunk) { return add(round().sends, {peer, chunk.index}); }
    /// Sends the chunk and drops what is held of it, for a tree whose sender does not need it.
    Step& give(int peer, Chunk chunk) {
      return add(round().sends, {peer, chunk.index, /*copy=*/false, /*give=*/true});
    }
    Step& add_from(int peer, Chunk chunk) { return add(round().receives, {peer, chunk.index}); }
    Step& copy_from(int peer, Chunk chunk) {
      return add(round().receives, {peer, chunk.index, /*copy=*/true});
    }

   private:
    friend class Algorithm;
    Step(Algorithm& algorithm, std::size_t index) : algorithm_(algorithm), index_(index) {}
    Round& round() { return algorithm_.rounds_[index_]; }
    Step& add(std::vector<Transfer>& side, const Transfer& transfer) {
      side.push_back(transfer);
      return *this;
    }
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

struct AlgorithmEntry;  // registry.h

}  // namespace comm
using comm::Algorithm;

/// Registers a custom all-reduce; --algorithm, `comm.algorithm`, `trireme show` and `trireme
/// verify` then accept its name. Throws ConfigError if the name is taken, empty, longer than 16
/// characters, "auto", "direct", "mpi-native", "nccl" or "nccl-native". Returns its entry
/// (registry.h), never null.
///
///     const auto registered = trireme::register_all_reduce("mine", mine);
const comm::AlgorithmEntry* register_all_reduce(std::string name, comm::Generator generator,
                                                std::string about = {});

}  // namespace trireme::inline v0
