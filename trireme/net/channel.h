// Channel: one end of an authenticated connection that carries frames; either end may leave at any
// time. Acceptor: listens and accepts Channels. Used where the group is not fixed (parameter
// servers, late joiners). Transports use the same sockets and handshake.
//
// A frame is a small head and a payload. Methods may be called from any thread; Works settle in the
// waiter's progress context. When the other end leaves, frames that arrived before are delivered;
// all other Works fail with PeerLost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/base/work.h"
#include "trireme/net/handshake.h"
#include "trireme/net/socket.h"

namespace trireme::inline v0::net {

inline constexpr std::uint64_t kFrameMagic = 0x326d656d61726674ull;  // "tframem2"

/// The first bytes of a frame on a socket. If `area` is not 0, no frame follows: the descriptor of
/// a shared area of that many bytes comes with the start.
struct FrameStart {
  std::uint64_t magic = kFrameMagic;
  std::uint32_t head = 0;  // bytes; so are the others
  std::uint32_t reserved = 0;
  std::uint64_t payload = 0;
  std::uint64_t area = 0;
};
static_assert(sizeof(FrameStart) == 32);

/// A frame that has arrived. The next frame reuses its memory.
class ChannelFrame {
 public:
  std::span<const std::byte> head() const noexcept { return {head_.get(), head_bytes_}; }
  std::span<std::byte> payload() const noexcept { return {payload_.get(), payload_bytes_}; }
  /// Makes room; the bytes have no defined values.
  void resize(std::size_t head_bytes, std::size_t payload_bytes);
  std::span<std::byte> writable_head() noexcept { return {head_.get(), head_bytes_}; }

 private:
  std::unique_ptr<std::byte[]> head_, payload_;
  std::size_t head_bytes_ = 0, payload_bytes_ = 0, head_room_ = 0, payload_room_ = 0;
};

/// Memory that the other end of a channel can map.
struct SharedArea {
  std::uint32_t id = 0;
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

class Channel {
 public:
  /// A worker's request counts the rows of each embedding table, for each term of its gradient.
  static constexpr std::size_t kMostHeadBytes = 16 << 20;

  virtual ~Channel() = default;
  /// The identity of the other end.
  virtual const Identity& peer() const noexcept = 0;
  /// Both spans must stay valid until the Work is done. Frames leave in the order of the calls.
  /// `head` has at most kMostHeadBytes.
  virtual Work send(std::span<const std::byte> head, std::span<const std::byte> payload = {}) = 0;
  /// Receives the next frame into `frame`, which must stay valid until the Work is done.
  virtual Work receive(ChannelFrame& frame) = 0;
  /// Allocates an area, page-aligned and zeroed. The other end can map it once it has received a
  /// frame that was sent later. Areas are numbered from 0. nullopt: this channel shares no memory.
  virtual std::optional<SharedArea> share(std::size_t bytes) = 0;
  /// Also shares an area that another channel of this process has allocated, and sets its id.
  /// False: this channel shares no memory.
  virtual bool share(SharedArea& area) = 0;
  /// Area `id` of the other end, if it was shared before a frame that has been received; else
  /// empty. It stays while the channel lives, even if the other end dies.
  virtual std::span<std::byte> area_of_peer(std::uint32_t id) = 0;
  /// Leaves: pending Works of this end fail, and the other end gets PeerLost.
  virtual void close() = 0;
};

class Acceptor {
 public:
  virtual ~Acceptor() = default;
  /// The address for dial_channel().
  virtual const std::string& address() const noexcept = 0;
  /// Puts the next caller that proves to know the secret into `to`, which must stay valid until the
  /// Work is done or the acceptor has ended. Other callers are dropped, and a silent caller does
  /// not delay the rest. One call at a time.
  virtual Work accept(std::shared_ptr<Channel>& to) = 0;
};

struct ChannelOptions {
  std::string secret;
  std::string host =
      "127.0.0.1";         // listening only: IPv4 or IPv6; empty: a unix socket on this host
  Identity identity = {};  // sent to the other end; epoch, size and purpose must agree
  /// A frame of more bytes is refused before memory is allocated.
  std::size_t max_frame_bytes = std::size_t{1} << 30;
  Duration timeout = std::chrono::seconds(30);  // for dialling and for the handshake
  /// Only for listening on a port: the number of threads that move the bytes of channels beside the
  /// waiter's progress context, which alone does it if there are none.
  int carriers = 0;
  /// The system ends a TCP connection whose other end has not read for this long. Zero: it does not.
  Duration patience = Duration::zero();
};

/// Connects to an Acceptor's address(). Blocks. Throws RefusedError, PeerLost, TimeoutError. Over a
/// unix socket, channels share memory.
std::shared_ptr<Channel> dial_channel(std::shared_ptr<Waiter> waiter, const std::string& address,
                                      const ChannelOptions& options);
/// Listens on a port that the system picks. A host other than loopback needs a secret.
std::unique_ptr<Acceptor> listen_channels(std::shared_ptr<Waiter> waiter, ChannelOptions options);
/// Takes over a socket whose other end has already been authenticated.
std::shared_ptr<Channel> channel_over(std::shared_ptr<Waiter> waiter, Descriptor socket,
                                      const Identity& peer, std::size_t max_frame_bytes);

}  // namespace trireme::inline v0::net
