// Handshake: two ends of a connection prove to each other that they know one secret.
//
//   dialler  -> Hello{magic, version, epoch, rank, size, purpose, nonce}
//   acceptor -> the same of its own
//   dialler  -> HMAC-SHA256(secret, "dial"   | both hellos)
//   acceptor -> HMAC-SHA256(secret, "accept" | both hellos)
//
// The hellos are inside the proofs, so nothing in them can be changed on the way. A wrong version
// or epoch is RefusedError with exit code 10, a wrong proof 11; an end that closes is PeerLost.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/waiter.h"

namespace trireme {
inline namespace v0 {
namespace net {

inline constexpr std::uint32_t kWireVersion = 2;

struct Identity {
  std::uint32_t epoch = 0;
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::uint32_t purpose = 0;  // which kind of connection; both ends must agree
};

/// One end's part of it without any socket: bytes in, bytes out, nothing blocks. What it keeps of
/// the other end has a fixed size.
class HandshakeState {
 public:
  HandshakeState(bool dialler, const Identity& mine, std::string secret);

  /// What is to be sent now; also after feed() has thrown.
  std::vector<std::byte> take_output() { return std::exchange(output_, {}); }
  /// How many bytes the next feed() takes; 0 when the other end has proved itself.
  std::size_t wanted() const noexcept { return wanted_; }
  /// Throws RefusedError.
  void feed(std::span<const std::byte> bytes);
  /// Who proved itself. Only when wanted() is 0.
  Identity other() const noexcept;

 private:
  using Hello = std::array<std::byte, 64>;
  using Proof = std::array<std::byte, 32>;
  void put(std::span<const std::byte> bytes);
  Proof prove(const char* role) const;
  void verify(std::span<const std::byte> proof);

  bool dialler_;
  std::string secret_;
  Hello own_, theirs_;
  std::vector<std::byte> output_;
  std::size_t wanted_;
  bool greeted_ = false;
};

/// Returns the other end's identity. Blocks through `waiter`.
Identity handshake(Waiter& waiter, int socket, bool dialler, const Identity& mine,
                   const std::string& secret, TimePoint deadline);

}  // namespace net
}  // namespace v0
}  // namespace trireme
