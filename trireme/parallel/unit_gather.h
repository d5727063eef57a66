// UnitGather: brings the whole weights of blocks ahead of their use and lets them go after it
// (ZeRO-3, and within the hosts of hybrid).
//
// The order of uses is known before a step: F0 F1 … B1 B0 for every micro-batch, the same on every
// rank of the group. A use is *issued* (its units that are not here are gathered) when the use
// before it is acquired, and *released* before the next one is acquired:
//
//     acquire F0 | issue F1 | compute | release F0 | acquire F1 | issue F2 | …
//
// So at most two uses' units are in memory, the last block's stay for its backward pass, and every
// rank issues the same gathers in the same order, also one that skips uses (a block that gets no
// gradient, a micro-batch that failed, a round in which it has none). Not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/buffer_pool.h"
#include "trireme/parallel/data/shard_event.h"
#include "trireme/parallel/parameter_store.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

class UnitGather {
 public:
  /// `group`: its own communicator, for nothing else, one rank per owner of the store.
  UnitGather(comm::Communicator& group, ParameterStore& store, OnShardEvent on_event = {});
  ~UnitGather();

  /// `uses` are blocks, in order. Issues the first.
  void begin(std::vector<std::uint16_t> uses);
  /// Waits until the units of use number `use` are here, after passing over those before it.
  void acquire(std::size_t use);
  void release(std::size_t use);
  /// Passes over uses up to, not with, `use`. Those that are released already stay so.
  void pass(std::size_t use);
  std::size_t num_uses() const noexcept { return uses_.size(); }

 private:
  struct Held {
    int wanted = 0;  // issued and not yet released
    BufferPool::Lease buffer;
    Work arrived;
  };
  void issue(std::size_t use);
  void wait(std::size_t use);

  comm::Communicator& group_;
  ParameterStore& store_;
  OnShardEvent on_event_;
  BufferPool pool_;
  std::vector<std::uint16_t> uses_;
  std::size_t issued_ = 0;              // uses before it are
  std::size_t next_ = 0;                // uses before it were acquired or passed over
  std::map<std::uint32_t, Held> held_;  // by unit
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
