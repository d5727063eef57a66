// Reception: the accepting side of the handshake, for many callers at once.
//
// Anyone can connect to a port and send nothing, or garbage, without end. Such callers must not
// delay the expected ones. So handshakes run side by side, each with its own time limit. An
// unauthenticated caller costs one descriptor and about 300 bytes; together they use at most an
// eighth of the descriptors that this process may open. Used by one thread at a time; blocks
// through the waiter.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "trireme/base/waiter.h"
#include "trireme/net/handshake.h"
#include "trireme/net/socket.h"

namespace trireme::inline v0::net {

class Reception {
 public:
  /// `listener` must outlive it. Beyond `most_callers` handshakes, callers wait in the listener's
  /// queue until one ends, or until the oldest has had 20 ms and is dropped.
  Reception(Waiter& waiter, const Listener& listener, const Identity& mine, std::string secret,
            std::size_t most_callers = limit_of_callers());

  /// Returns the next caller that proves to know the secret. Throws TimeoutError, whose text names
  /// `what`, PeerLost if it is cancelled, and ResourceError.
  std::pair<Descriptor, Identity> next(const Until& until, const std::string& what);
  /// The same without waiting: nullopt if there is none yet.
  std::optional<std::pair<Descriptor, Identity>> next_now();
  /// Readable when next_now() has something to do.
  int descriptor() const noexcept { return epoll_.get(); }

 private:
  struct Caller {
    Descriptor socket;
    HandshakeState state;
    TimePoint came, limit;
    std::byte bytes[64];
    std::size_t got = 0;
  };
  enum class Progress { Waits, Done, Drop };

  bool is_full() const noexcept { return callers_.size() >= most_callers_; }
  static std::size_t limit_of_callers() noexcept;
  void let_in();
  void listen(bool wanted);
  Descriptor next_guest();
  Progress serve(Caller& caller);
  static bool put(Caller& caller);

  Waiter& waiter_;
  const Listener& listener_;
  const Identity mine_;
  const std::string secret_;
  const std::size_t most_callers_;
  const Epoll epoll_;  // watches the listener and all callers
  bool listens_ = true;
  std::deque<Caller> callers_;
};

}  // namespace trireme::inline v0::net
