// Channel: one of two authenticated ends that exchange length-prefixed frames; either may leave at
// any time. Acceptor: where ends come from. Used where the group is not fixed (parameter servers,
// late joiners); a Transport connects its ranks with the same sockets and handshake.
//
// A frame is {magic, 64-bit length} and its bytes. A length above `max_frame_bytes` is refused
// before anything is allocated, and only an authenticated end is listened to at all. Methods may be
// called from any thread; Works settle in the waiter's progress context. When the other end leaves,
// what is pending and all that follows fails with PeerLost; frames that came before are delivered.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/base/work.h"
#include "trireme/net/handshake.h"
#include "trireme/net/socket.h"

namespace trireme {
inline namespace v0 {
namespace net {

class Reception;

inline constexpr std::uint64_t kFrameMagic = 0x316d656d61726674ull;  // "tframem1"

struct ChannelOptions {
  std::string secret;
  std::string host = "127.0.0.1";  // of an Acceptor: IPv4 or IPv6; empty: unix, this host only
  Identity identity = {};          // sent to the other end; epoch, size, purpose must agree
  std::size_t max_frame_bytes = std::size_t{1} << 30;
  Duration timeout = std::chrono::seconds(30);  // of dialling and handshaking
};

class Channel {
 public:
  /// Connects to an Acceptor's address(). Blocks. Throws RefusedError, PeerLost, TimeoutError.
  static std::shared_ptr<Channel> dial(std::shared_ptr<Waiter> waiter, const std::string& address,
                                       const ChannelOptions& options);
  /// Over a socket whose other end has been authenticated already.
  static std::shared_ptr<Channel> over(std::shared_ptr<Waiter> waiter, Descriptor socket,
                                       const Identity& peer, std::size_t max_frame_bytes);
  ~Channel();
  Channel(const Channel&) = delete;

  /// Who is there.
  const Identity& peer() const noexcept;
  /// `bytes` must stay valid until the Work is done. Frames leave in the order of the calls.
  Work send(std::span<const std::byte> bytes);
  /// The next frame into `frame`, which must stay valid until the Work is done.
  Work receive(std::vector<std::byte>& frame);
  /// Leaves: pending Works fail here, and the other end gets PeerLost.
  void close();

 private:
  struct Core;
  Channel(std::shared_ptr<Waiter> waiter, Descriptor socket, Identity peer,
          std::size_t max_frame_bytes);
  const std::shared_ptr<Waiter> waiter_;
  const std::shared_ptr<Core> core_;
};

class Acceptor {
 public:
  /// Listens on a port that the system picks. A host that is not loopback needs a secret.
  Acceptor(std::shared_ptr<Waiter> waiter, ChannelOptions options);
  ~Acceptor();
  const std::string& address() const noexcept { return listener_.address; }
  /// The next end that proves to know the secret; others are dropped, and a silent one keeps nobody
  /// waiting. One thread at a time. Throws TimeoutError.
  std::shared_ptr<Channel> accept(Deadline deadline);

 private:
  const std::shared_ptr<Waiter> waiter_;
  const ChannelOptions options_;
  const Listener listener_;
  std::unique_ptr<Reception> reception_;
};

}  // namespace net
}  // namespace v0
}  // namespace trireme
