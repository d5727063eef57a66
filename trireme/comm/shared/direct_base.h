// DirectBase: the base of the direct calls. It holds the call and the announced buffers, and sets
// the flag that this rank writes to its peers' memory. No rank's call ends before all ranks are
// done, since a rank may leave the group then, and peers must not need its memory any more.
#pragma once

#include <algorithm>
#include <memory>

#include "trireme/comm/engine.h"
#include "trireme/comm/shared/peer_memory.h"
#include "trireme/comm/shared/shared_backend.h"

namespace trireme::inline v0::comm {

class DirectBase : public Run, protected PolledRun {
 public:
  DirectBase(Engine& engine, std::shared_ptr<Call> call, DirectPointers& pointers);
  PolledRun* polled() noexcept override { return this; }

 protected:
  bool waits() const override;
  bool poll() override;
  bool owes(int peer) const override;
  /// This rank's slot of the call on the board.
  BoardMemory::Slot& own_slot() { return engine_.board().slot(rank_, call_->number); }
  const Operation& operation() const noexcept { return call_->operation; }
  /// Calls step(begin, count) for blocks of [0, count); step may write to the peers' memory. Before
  /// each block it checks whether a peer has left, since that peer's memory must not be written any
  /// more. Returns false if the engine has failed for this reason.
  template <class Step>
  bool write_blocks(std::size_t count, std::size_t block, const Step& step);
  /// Publishes that this rank has done all its reads and writes.
  void declare_done();
  /// Called when all ranks are done, before the call finishes.
  virtual void ended() {}

  Engine& engine_;
  const std::shared_ptr<Call> call_;
  const int rank_, size_;
  DirectPointers& pointers_;
  PeerMemory memory_;
};

template <class Step>
bool DirectBase::write_blocks(std::size_t count, std::size_t block, const Step& step) {
  BoardMemory& own = engine_.board().own();
  own.writing.store(call_->number);  // must come before the first read of `aborted` (Board::abort)
  bool going = true;
  for (std::size_t begin = 0; begin < count && going; begin += block) {
    going = engine_.board().first_aborted() < 0;
    if (going) step(begin, std::min(block, count - begin));
  }
  own.writing.store(0, std::memory_order_release);
  return going || memory_.look();
}

}  // namespace trireme::inline v0::comm
