#include "trireme/net/shm/control.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::inline v0::net {
namespace {

constexpr std::size_t kMostDescriptors = 2;

}  // namespace

bool send_control(int socket, const Control& control, const std::vector<int>& descriptors) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> space{};
  iovec part{const_cast<Control*>(&control), sizeof control};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const std::size_t bytes = descriptors.size() * sizeof(int);
    message.msg_control = space.data();
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), descriptors.data(), bytes);
  }
  const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(sizeof control)) return true;
  if (may_send_later(errno)) return false;
  if (errno == EPIPE || errno == ECONNRESET) {
    throw PeerLost("a peer on this host closed its socket", {.operation = "shm"});
  }
  throw_system_error("passing a descriptor");
}

std::optional<Received> receive_control(int socket, bool& ended) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> space{};
  Received received;
  iovec part{&received.control, sizeof received.control};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  const ssize_t count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  received.cut = count > 0 && (message.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* header = count > 0 ? CMSG_FIRSTHDR(&message) : nullptr; header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t number = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < number; ++i) {
      int value = -1;
      std::memcpy(&value, CMSG_DATA(header) + i * sizeof(int), sizeof value);
      received.descriptors.emplace_back(value);
    }
  }
  ended = count != static_cast<ssize_t>(sizeof received.control) ||
          received.control.magic != kShmMagic || received.control.version != kShmVersion;
  if (ended) return std::nullopt;
  return received;
}

}  // namespace trireme::inline v0::net
