// Handshake: both ends of a connection prove to each other that they know one secret.
//
//   dialler                                                                           acceptor
//      |  ---- Hello{magic, version, epoch, rank, size, purpose, nonce} ---------------->  |
//      |  <--- Hello{...} of the acceptor -----------------------------------------------  |
//      |  ---- HMAC-SHA256(secret, "dial"   | both hellos) ----------------------------->  |
//      |  <--- HMAC-SHA256(secret, "accept" | both hellos) ------------------------------  |
//
// The proofs cover both hellos, so these cannot be changed in transit. A wrong version or epoch is
// RefusedError with exit code 10, a wrong proof with exit code 11. A closed connection is PeerLost.
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
#include "trireme/net/socket.h"

namespace trireme::inline v0::net {

inline constexpr std::uint32_t kWireVersion = 2;

struct Identity {
  std::uint32_t epoch = 0;
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::uint32_t purpose = 0;  // kind of connection; both ends must agree
};

/// One end of the handshake without a socket: it takes and returns bytes and never blocks. It keeps
/// a fixed amount of data about the other end.
class HandshakeState {
 public:
  HandshakeState(bool dialler, const Identity& mine, std::string secret);

  /// The bytes to send now. Call it also after feed() has thrown.
  std::vector<std::byte> take_output() { return std::exchange(output_, {}); }
  /// Number of bytes that the next feed() takes; 0 once the other end has proved itself.
  std::size_t wanted() const noexcept { return wanted_; }
  /// Throws RefusedError.
  void feed(std::span<const std::byte> bytes);
  /// Identity of the other end. Valid only when wanted() is 0.
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

/// Runs the handshake over `socket`; returns the other end's identity. Blocks through `waiter`.
Identity handshake(Waiter& waiter, int socket, bool dialler, const Identity& mine,
                   const std::string& secret, const Until& until);

}  // namespace trireme::inline v0::net
