// Messages between ranks of one host over their unix sockets: 64 bytes that carry descriptors
// (SCM_RIGHTS). Everything else goes through the rings.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/net/socket.h"

namespace trireme::inline v0::net {

inline constexpr std::uint64_t kShmMagic = 0x316d6873656d6972ull;  // "rimeshm1"
inline constexpr std::uint32_t kShmVersion = 3;

enum class ControlKind : std::uint32_t { Hello = 1, Region };
struct Control {
  std::uint64_t magic = kShmMagic;
  std::uint32_t version = kShmVersion;
  ControlKind kind = ControlKind::Hello;
  std::uint32_t epoch = 0;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::uint32_t region = 0;
  std::uint64_t bytes = 0;   // of the segment or region
  std::int64_t process = 0;  // Hello: the sender's process and the address of its segment's header;
  std::uint64_t header = 0;  // the receiver tries whether it can read the sender's memory there
  std::uint64_t reserved = 0;
};
static_assert(sizeof(Control) == 64);

struct Received : PassedDescriptors {
  Control control;
};

/// Sends at once. False: nothing was sent, because earlier messages to this or another process have
/// not been received yet. Throws PeerLost or ResourceError.
bool send_control(int socket, const Control& control, const std::vector<int>& descriptors);
/// The next message, if any. Sets `ended` if the peer has closed or violated the protocol.
std::optional<Received> receive_control(int socket, bool& ended);

}  // namespace trireme::inline v0::net
