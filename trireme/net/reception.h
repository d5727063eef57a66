// Reception: the accepting side of the handshake with many callers at once.
//
// Whoever connects to a port may say nothing, or nonsense, for ever; none of that may keep the
// right ones waiting. Callers shake hands side by side, each within a limit of its own; a stranger
// costs one descriptor and some 300 bytes until he is dropped, and all of them together no more
// than an eighth of the descriptors that this process may have. One thread at a time; blocks
// through the waiter.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "trireme/base/waiter.h"
#include "trireme/net/handshake.h"
#include "trireme/net/socket.h"

namespace trireme {
inline namespace v0 {
namespace net {

class Reception {
 public:
  /// `listener` must outlive it.
  Reception(Waiter& waiter, const Listener& listener, const Identity& mine, std::string secret);

  /// The next caller that proves to know the secret. Throws TimeoutError, saying `what` it waited
  /// for, and ResourceError.
  std::pair<Descriptor, Identity> next(TimePoint deadline, const std::string& what);

 private:
  struct Caller {
    Descriptor socket;
    HandshakeState state;
    TimePoint limit;
    std::byte bytes[64];
    std::size_t got = 0;
  };
  enum class Progress { Waits, Done, Drop };

  void let_in();
  Descriptor next_guest();
  Progress serve(Caller& caller);
  static bool put(Caller& caller);

  Waiter& waiter_;
  const Listener& listener_;
  const Identity mine_;
  const std::string secret_;
  const std::size_t most_callers_;  // then the one who has waited longest goes
  const Descriptor epoll_;          // the listener and all callers
  std::deque<Caller> callers_;
};

}  // namespace net
}  // namespace v0
}  // namespace trireme
