// DirectCall: a collective that runs in memory which the ranks of a host reach themselves, without
// messages. The engine posts this rank's header (announce), runs it when all headers are there and
// agree (run), and polls it until it calls Engine::finish. Progress context only; nothing blocks.
#pragma once

#include <memory>

#include "trireme/comm/board.h"

namespace trireme {
inline namespace v0 {
namespace comm {

class Engine;
struct Call;

class DirectCall {
 public:
  virtual ~DirectCall() = default;
  /// Before the header is posted: says where the buffers are.
  virtual void announce(BoardMemory::Slot& slot) = 0;
  /// After all headers are there.
  virtual void run() = 0;
  /// True if poll() would find nothing to do: a look at flags, no more.
  virtual bool waits() const = 0;
  /// Goes on where flags of the peers allow it; true if anything moved. Ends in Engine::finish.
  virtual bool poll() = 0;
  /// True if it is `peer` whose flags are waited for.
  virtual bool owes(int peer) const = 0;
};

/// True where `kind` has a direct form that needs nothing but can_read().
bool has_direct_form(OpKind kind) noexcept;
std::shared_ptr<DirectCall> make_direct(Engine& engine, const std::shared_ptr<Call>& call);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
