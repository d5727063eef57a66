// Channel: one end of an authenticated connection that carries length-prefixed frames; either end
// may leave at any time. Acceptor: listens and accepts Channels. Used where the group is not fixed
// (parameter servers, late joiners). Transports use the same sockets and handshake.
//
// A frame is {magic, 64-bit length} followed by its bytes. A length above `max_frame_bytes` is
// refused before memory is allocated. Frames are read only after the handshake has succeeded.
// Methods may be called from any thread; Works settle in the waiter's progress context. When the
// other end leaves, frames that arrived before are delivered; all other Works fail with PeerLost.
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

namespace trireme::inline v0::net {

class Reception;

inline constexpr std::uint64_t kFrameMagic = 0x316d656d61726674ull;  // "tframem1"

struct ChannelOptions {
  std::string secret;
  std::string host = "127.0.0.1";  // Acceptor only: IPv4 or IPv6; empty: a unix socket on this host
  Identity identity = {};          // sent to the other end; epoch, size and purpose must agree
  std::size_t max_frame_bytes = std::size_t{1} << 30;
  Duration timeout = std::chrono::seconds(30);  // for dialling and for the handshake
};

class Channel {
 public:
  /// Connects to an Acceptor's address(). Blocks. Throws RefusedError, PeerLost, TimeoutError.
  static std::shared_ptr<Channel> dial(std::shared_ptr<Waiter> waiter, const std::string& address,
                                       const ChannelOptions& options);
  /// Takes over a socket whose other end has already been authenticated.
  static std::shared_ptr<Channel> over(std::shared_ptr<Waiter> waiter, Descriptor socket,
                                       const Identity& peer, std::size_t max_frame_bytes);
  ~Channel();
  Channel(const Channel&) = delete;

  /// The identity of the other end.
  const Identity& peer() const noexcept;
  /// `bytes` must stay valid until the Work is done. Frames leave in the order of the calls.
  Work send(std::span<const std::byte> bytes);
  /// Receives the next frame into `frame`, which must stay valid until the Work is done.
  Work receive(std::vector<std::byte>& frame);
  /// Leaves: pending Works of this end fail, and the other end gets PeerLost.
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
  /// Listens on a port that the system picks. A host other than loopback needs a secret.
  Acceptor(std::shared_ptr<Waiter> waiter, ChannelOptions options);
  ~Acceptor();
  const std::string& address() const noexcept { return listener_.address; }
  /// Returns the next caller that proves to know the secret. Other callers are dropped, and a
  /// silent caller does not delay the rest. Only one thread at a time. Throws TimeoutError.
  std::shared_ptr<Channel> accept(Deadline deadline);

 private:
  const std::shared_ptr<Waiter> waiter_;
  const ChannelOptions options_;
  const Listener listener_;
  std::unique_ptr<Reception> reception_;
};

}  // namespace trireme::inline v0::net
