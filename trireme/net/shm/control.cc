#include "trireme/net/shm/control.h"

#include <cerrno>

#include "trireme/base/error.h"

namespace trireme::inline v0::net {

bool send_control(int socket, const Control& control, const std::vector<int>& descriptors) {
  iovec part{const_cast<Control*>(&control), sizeof control};
  const ssize_t sent = send_parts(socket, {&part, 1}, descriptors);
  if (sent == static_cast<ssize_t>(sizeof control)) return true;
  if (may_send_later()) return false;
  if (errno == EPIPE || errno == ECONNRESET) {
    throw PeerLost("a peer on this host closed its socket", {.operation = "shm"});
  }
  throw_system_error("passing a descriptor");
}

std::optional<Received> receive_control(int socket, bool& ended) {
  Received received;
  iovec part{&received.control, sizeof received.control};
  const ssize_t count = receive_parts(socket, {&part, 1}, &received);
  if (count < 0 && would_block()) return std::nullopt;
  ended = count != static_cast<ssize_t>(sizeof received.control) ||
          received.control.magic != kShmMagic || received.control.version != kShmVersion;
  if (ended) return std::nullopt;
  return received;
}

}  // namespace trireme::inline v0::net
