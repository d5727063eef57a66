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

#include <cstdint>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/waiter.h"

namespace trireme {
inline namespace v0 {
namespace net {

inline constexpr std::uint32_t kWireVersion = 1;

struct Identity {
  std::uint32_t epoch = 0;
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::uint32_t purpose = 0;  // which kind of connection; both ends must agree
};

/// Returns the other end's identity. Blocks through `waiter`.
Identity handshake(Waiter& waiter, int socket, bool dialler, const Identity& mine,
                   const std::string& secret, TimePoint deadline);

}  // namespace net
}  // namespace v0
}  // namespace trireme
