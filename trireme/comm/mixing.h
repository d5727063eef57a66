// GossipMixer: one round of gossip. Each rank's buffers become the weighted sum of its own and its
// neighbours' buffers (plan/mixing.h). A rank exchanges messages with its neighbours only.
//
// Buffers are sent in chunks of `chunk_bytes`, two under way at a time, so a rank needs two chunks
// of memory for each neighbour and two for itself, whatever the buffers' size. Terms are added by
// ascending rank, so a round is reproducible bit for bit.
//
// Not thread safe. All ranks of a round must call mix() with the same round, counts and types.
// Fails with the communicator's error, which names the neighbour.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/comm/communicator.h"
#include "trireme/plan/mixing.h"

namespace trireme::inline v0::comm {

class GossipMixer {
 public:
  /// Called when this rank sends `bytes` to `peer`, or (`received`) has received them from it.
  using OnMessage = std::function<void(int peer, std::size_t bytes, bool received)>;

  GossipMixer(Communicator& world, std::size_t chunk_bytes = 4 << 20, OnMessage on_message = {});
  /// Mixes the buffers in place. All must have one type, F32 or F64 (CheckFailure otherwise).
  void mix(const plan::MixingRound& round, std::span<const Buffer> buffers);

 private:
  struct Chunk {
    std::size_t begin = 0, count = 0;  // elements of the buffers' concatenation
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

}  // namespace trireme::inline v0::comm
