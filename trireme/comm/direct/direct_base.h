// DirectBase: what the direct calls have in common: the call, the buffers that the ranks announced,
// the flag that says when this rank writes into its peers' memory, and the one by which all end
// together: who has ended may leave the group, and that must not meet a rank that is still at it.
#pragma once

#include <algorithm>
#include <memory>

#include "trireme/comm/direct/direct_call.h"
#include "trireme/comm/direct/peer_memory.h"
#include "trireme/comm/engine.h"

namespace trireme {
inline namespace v0 {
namespace comm {

class DirectBase : public DirectCall {
 public:
  DirectBase(Engine& engine, std::shared_ptr<Call> call);
  bool waits() const override;
  bool poll() override;
  bool owes(int peer) const override;

 protected:
  const Operation& operation() const noexcept { return call_->operation; }
  /// Calls step(begin, count) for blocks of [0, count), which may write into the peers' memory, and
  /// looks before each whether a peer gave up: its memory is then its own again. False if one did.
  template <class Step>
  bool write_blocks(std::size_t count, std::size_t block, const Step& step);
  /// This rank has written and read all that it shall.
  void declare_done();
  /// All have; the call is about to finish.
  virtual void ended() {}

  Engine& engine_;
  const std::shared_ptr<Call> call_;
  const int rank_, size_;
  PeerMemory memory_;
};

template <class Step>
bool DirectBase::write_blocks(std::size_t count, std::size_t block, const Step& step) {
  BoardMemory& own = engine_.board().own();
  own.writing.store(call_->number);  // before the first look at `aborted`: Board::abort
  bool going = true;
  for (std::size_t begin = 0; begin < count && going; begin += block) {
    going = engine_.board().first_aborted() < 0;
    if (going) step(begin, std::min(block, count - begin));
  }
  own.writing.store(0, std::memory_order_release);
  return going || memory_.look();
}

}  // namespace comm
}  // namespace v0
}  // namespace trireme
