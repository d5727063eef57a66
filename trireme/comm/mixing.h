// One round of gossip: every rank's buffers become the weighted sum of its own and of those of the
// ranks that it hears in this round (plan/mixing.h). Decentralised: a rank sends to its neighbours
// of the round and receives from them, and nobody else learns of it.
//
// Buffers cross in chunks of `chunk_bytes`, two under way at a time, so that a rank needs two
// chunks for each neighbour that it hears and two for itself, whatever the buffers' size. A sum is
// added by ascending rank, so a round repeats bit for bit, and two ranks that hear the same have
// the same.
//
// Not thread safe; all ranks of a round call mix() with the same round, counts and types. Fails
// with the communicator's error, which names the neighbour.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/comm/communicator.h"
#include "trireme/plan/mixing.h"

namespace trireme {
inline namespace v0 {
namespace comm {

class GossipMixer {
 public:
  /// What crossed: this rank sent `bytes` to `peer`, or (`received`) got them from it.
  using OnMessage = std::function<void(int peer, std::size_t bytes, bool received)>;

  GossipMixer(Communicator& world, std::size_t chunk_bytes = 4 << 20, OnMessage on_message = {});
  /// In place; all of one type, F32 or F64 (CheckFailure otherwise).
  void mix(const plan::MixingRound& round, std::span<const Buffer> buffers);

 private:
  struct Chunk {
    std::size_t begin = 0, count = 0;  // elements of all buffers, back to back
    std::vector<std::byte> own;
    std::vector<std::vector<std::byte>> heard;  // per neighbour
    Work work;
  };
  void start(const plan::MixingRound& round, std::span<const Buffer> buffers, Chunk& chunk,
             std::size_t begin, std::size_t count);
  void finish(const plan::MixingRound& round, std::span<const Buffer> buffers, Chunk& chunk);

  Communicator& world_;
  std::size_t chunk_bytes_;
  OnMessage on_message_;
  std::vector<Chunk> chunks_;
};

}  // namespace comm
}  // namespace v0
}  // namespace trireme
