#include "trireme/net/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/rand.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/hex.h"
#include "trireme/net/endpoint.h"

namespace trireme::inline v0::net {
namespace {

// Lets a waiter sleep on one descriptor; the waiting code calls poll(2) itself.
class Wakeup final : public ProgressSource {
 public:
  Wakeup(int descriptor, short events) {
    epoll_.control(EPOLL_CTL_ADD, descriptor, static_cast<std::uint32_t>(events));
  }
  bool poll() override { return false; }
  bool pending() const noexcept override { return true; }
  int descriptor() const noexcept override { return epoll_.get(); }
  void arm(bool) noexcept override {}

 private:
  const Epoll epoll_;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Address tcp_address(const std::string& host, std::uint16_t port) {
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.length = sizeof(sockaddr_in);
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.length = sizeof(sockaddr_in6);
  } else {
    throw ConfigError("'" + host + "' is no IPv4 or IPv6 address",
                      {.operation = "tcp", .advice = "Give a numeric address of this host."});
  }
  return address;
}

Address unix_address(const std::string& name) {
  Address address;
  auto* un = reinterpret_cast<sockaddr_un*>(&address.storage);
  un->sun_family = AF_UNIX;  // sun_path[0] stays 0: an abstract name, no file
  if (name.size() + 1 > sizeof un->sun_path) throw ConfigError("unix name is too long: " + name);
  std::memcpy(un->sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Address parse(const std::string& text) {
  std::istringstream in(text);
  std::string kind, name;
  in >> kind >> name;
  if (kind == "unix" && !name.empty()) return unix_address(name);
  const auto endpoint = parse_endpoint(name);
  if (kind == "tcp" && endpoint) return tcp_address(endpoint->host, endpoint->port);
  throw RefusedError("'" + text + "' is no address",
                     {.operation = "dial", .advice = "Run the same version on every host."});
}

Descriptor open_socket(int family) {
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) throw_system_error("socket");
  const int off = 0;  // "::" takes IPv4, too, whatever net.ipv6.bindv6only says
  if (family == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  return socket;
}

void set_options(int socket, int family) {
  const int on = 1;
  if (family == AF_UNIX) return;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // While nobody sends, a host that has disappeared is noticed after 10 + 3 x 5 s; but after the
  // time of set_patience(), where that is called, since it overrides this (tcp(7)).
  const int idle = 10, interval = 5, probes = 3;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

// `name`: of the address, for errors.
Descriptor listening(const Address& address, const std::string& name, bool named_port = false) {
  Descriptor socket = open_socket(address.family());
  const int on = 1;  // reuse a port whose last connections are still closing
  if (named_port) setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(socket.get(), address.get(), address.length) != 0) {
    const int why = errno;
    const bool is_taken = why == EADDRINUSE && named_port;
    if (!is_taken && why != EADDRNOTAVAIL) throw_system_error("bind");
    throw ResourceError(
        "cannot listen on " + name + ": " + std::strerror(why),
        {.operation = "net",
         .advice = is_taken ? "End the process that uses this port, or choose another."
                            : "Give an address of this host."});
  }
  if (::listen(socket.get(), SOMAXCONN) != 0) throw_system_error("listen");
  return socket;
}

bool same_user(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
         credentials.uid == geteuid();
}

bool same_host(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(b).sin_addr.s_addr;
  }
  return a.ss_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6&>(a).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(b).sin6_addr, sizeof(in6_addr)) == 0;
}

// The errors of a pending connection that accept(2) reports, as its manual lists them.
bool is_of_one_caller(int error) {
  constexpr int kAll[] = {ECONNABORTED, ENETDOWN,     EPROTO,     ENOPROTOOPT, EHOSTDOWN,
                          ENONET,       EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH};
  return std::find(std::begin(kAll), std::end(kAll), error) != std::end(kAll);
}

// Calls `move`, which sends or receives, until it has moved all bytes.
template <class Byte, class Move>
void move_all(Waiter& waiter, int socket, short events, std::span<Byte> bytes, const Until& until,
              const std::string& what, Move move) {
  while (!bytes.empty()) {
    const ssize_t count = move(bytes);
    if (count > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    } else if (count < 0 && would_block()) {
      wait_for(waiter, socket, events, until, what);
    } else {
      throw PeerLost(what + " closed the connection", {.operation = "connect"});
    }
  }
}

// Memory for the descriptors that a message passes.
struct DescriptorRoom {
  static constexpr std::size_t kMost = 4;
  alignas(cmsghdr) char bytes[CMSG_SPACE(kMost * sizeof(int))] = {};
};

}  // namespace

Epoll::Epoll() : descriptor_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!descriptor_) throw_system_error("epoll_create1");
}

void Epoll::control(int operation, int descriptor, std::uint32_t events, std::uint64_t data) const {
  epoll_event event{.events = events, .data = {.u64 = data}};
  if (epoll_ctl(get(), operation, descriptor, &event) != 0) throw_system_error("epoll_ctl");
}

void set_patience(int socket, Duration patience) {
  const auto wanted = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
  const auto limited = static_cast<unsigned>(std::clamp<long long>(wanted, 1, 1 << 30));
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &limited, sizeof limited);
}

void bound_local_queue(int socket, int bytes) {
  sockaddr_storage ends[2]{};
  socklen_t own = sizeof ends[0], peer = sizeof ends[1];
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&ends[0]), &own) != 0) return;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&ends[1]), &peer) != 0) return;
  if (!same_host(ends[0], ends[1])) return;
  setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

void bound_rate(int socket, std::int64_t bytes_per_second) {
  if (bytes_per_second <= 0) return;
  const auto rate = static_cast<std::uint64_t>(bytes_per_second);
  if (setsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate) != 0)
    throw_system_error("SO_MAX_PACING_RATE");
}

bool would_block() noexcept { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

bool may_send_later() noexcept { return would_block() || errno == ETOOMANYREFS; }

ssize_t send_parts(int socket, std::span<iovec> parts, std::span<const int> descriptors) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  DescriptorRoom room;
  if (!descriptors.empty()) {
    message.msg_control = room.bytes;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t receive_parts(int socket, std::span<iovec> parts, PassedDescriptors* passed) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  DescriptorRoom room;
  if (passed != nullptr) {
    message.msg_control = room.bytes;
    message.msg_controllen = sizeof room.bytes;
  }
  const ssize_t count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (passed == nullptr || count <= 0) return count;
  passed->cut = (message.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(&message, one)) {
    if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = CMSG_LEN(0); at < one->cmsg_len; at += sizeof(int)) {
      int value = -1;
      std::memcpy(&value, reinterpret_cast<const char*>(one) + at, sizeof value);
      passed->descriptors.emplace_back(value);
    }
  }
  return count;
}

void throw_system_error(const std::string& call) {
  throw ResourceError(call + " failed: " + std::strerror(errno),
                      {.operation = "net",
                       .advice = "Check the limits on descriptors, ports and "
                                 "memory (ulimit -a)."});
}

void Until::check() const {
  if (cancelled && cancelled()) throw PeerLost("the ranks have changed", {.operation = "connect"});
}

void wait_for(Waiter& waiter, int descriptor, short events, const Until& until,
              const std::string& what) {
  constexpr Duration kLook = std::chrono::milliseconds(100);
  const auto ready = [&] {
    pollfd one{descriptor, events, 0};
    return ::poll(&one, 1, 0) > 0;
  };
  if (ready()) return;
  const auto wakeup = std::make_shared<Wakeup>(descriptor, events);
  waiter.add(wakeup);
  bool came = false, cancelled = false;
  while (!came && !cancelled && waiter.now() < until.deadline) {
    came = waiter.wait_until(
        ready, until.cancelled ? std::min(until.deadline, waiter.now() + kLook) : until.deadline);
    cancelled = !came && until.cancelled && until.cancelled();
  }
  waiter.remove(wakeup.get());
  if (cancelled) until.check();
  if (!came) {
    throw TimeoutError("waited in vain for " + what,
                       {.operation = "connect",
                        .advice = "Check that every rank was started and reaches this host."});
  }
}

void write_all(Waiter& waiter, int socket, std::span<const std::byte> bytes, const Until& until,
               const std::string& what) {
  move_all(waiter, socket, POLLOUT, bytes, until, what, [&](std::span<const std::byte> rest) {
    return ::send(socket, rest.data(), rest.size(), MSG_NOSIGNAL);
  });
}

void read_all(Waiter& waiter, int socket, std::span<std::byte> bytes, const Until& until,
              const std::string& what) {
  move_all(waiter, socket, POLLIN, bytes, until, what,
           [&](std::span<std::byte> rest) { return ::recv(socket, rest.data(), rest.size(), 0); });
}

Listener listen_tcp(const std::string& host, std::uint16_t port) {
  Listener listener{listening(tcp_address(host, port), to_string({host, port}), port != 0), {}};
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  getsockname(listener.socket.get(), reinterpret_cast<sockaddr*>(&bound), &length);
  const std::uint16_t chosen = bound.ss_family == AF_INET
                                   ? reinterpret_cast<const sockaddr_in*>(&bound)->sin_port
                                   : reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port;
  listener.address = "tcp " + to_string({host, ntohs(chosen)});
  return listener;
}

Listener listen_unix(std::string name) {
  if (!name.empty()) return {listening(unix_address(name), name), "unix " + name};
  unsigned char random[16];
  if (RAND_bytes(random, sizeof random) != 1)
    throw ResourceError("the system has no random numbers", {.operation = "net"});
  name = "trireme-" + to_hex(std::as_bytes(std::span(random)));
  return {listening(unix_address(name), name), "unix " + name};
}

Descriptor dial(Waiter& waiter, const std::string& text, const Until& until) {
  const Address address = parse(text);
  Descriptor socket = open_socket(address.family());
  set_options(socket.get(), address.family());
  while (connect(socket.get(), address.get(), address.length) != 0) {
    if (errno == EINPROGRESS) {
      wait_for(waiter, socket.get(), POLLOUT, until, text);
      int error = 0;
      socklen_t length = sizeof error;
      getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
      if (error == 0) break;
      errno = error;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN && waiter.now() < until.deadline) {  // the unix backlog is full
      until.check();
      waiter.sleep(std::chrono::milliseconds(1));
      continue;
    }
    throw PeerLost("cannot connect to " + text + ": " + std::strerror(errno),
                   {.operation = "connect",
                    .advice = "Check that the peer still runs and that "
                              "no firewall stands between."});
  }
  if (address.family() == AF_UNIX && !same_user(socket.get())) {
    throw RefusedError(ExitCode::Unauthenticated, "another user listens at " + text,
                       {.operation = "connect", .advice = "Find out who, and why."});
  }
  return socket;
}

Descriptor accept_now(const Listener& listener) {
  for (;;) {
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    Descriptor socket(accept4(listener.socket.get(), reinterpret_cast<sockaddr*>(&from), &length,
                              SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      if (from.ss_family == AF_UNIX && !same_user(socket.get())) continue;
      set_options(socket.get(), from.ss_family);
      return socket;
    }
    if (would_block()) return socket;
    if (!is_of_one_caller(errno)) throw_system_error("accept");
  }
}

}  // namespace trireme::inline v0::net
