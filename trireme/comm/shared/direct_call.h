// DirectCall: a collective in which the ranks of a host access one another's memory, without
// messages. The engine calls announce(), posts the header, calls run() when all headers agree, and
// then poll() until that calls Engine::finish. Progress context only; nothing blocks.
#pragma once

#include <memory>

#include "trireme/comm/shared/board.h"

namespace trireme::inline v0::comm {

class Engine;
struct Call;

class DirectCall {
 public:
  virtual ~DirectCall() = default;
  /// Writes the locations of this rank's buffers to `slot`.
  virtual void announce(BoardMemory::Slot& slot) = 0;
  /// Called after all ranks have announced.
  virtual void run() = 0;
  /// True if poll() would find nothing to do. Cheap: only reads flags.
  virtual bool waits() const = 0;
  /// Goes on as far as the peers' flags allow; at the end calls Engine::finish. True if it moved.
  virtual bool poll() = 0;
  /// True if the call waits for `peer`'s flags.
  virtual bool owes(int peer) const = 0;
};

/// True if `kind` has a direct form that needs only Engine::can_read().
bool has_direct_form(OpKind kind) noexcept;
std::shared_ptr<DirectCall> make_direct(Engine& engine, const std::shared_ptr<Call>& call);

}  // namespace trireme::inline v0::comm
