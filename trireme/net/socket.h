// Sockets of the transports: blocking operations through a Waiter.
//
// Used to set connections up; connected transports poll their sockets themselves. All sockets are
// non-blocking and close-on-exec. System failures are ResourceError, an expired deadline is
// TimeoutError, a closed connection is PeerLost.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/descriptor.h"
#include "trireme/base/waiter.h"

namespace trireme::inline v0::net {

/// An epoll(7).
class Epoll {
 public:
  Epoll();
  int get() const noexcept { return descriptor_.get(); }
  /// epoll_ctl(2). `data` comes back with each event of `descriptor`.
  void control(int operation, int descriptor, std::uint32_t events, std::uint64_t data = 0) const;

 private:
  const Descriptor descriptor_;
};

/// TCP: the system ends the connection after the peer has taken nothing, or has been unreachable,
/// for this long (TCP_USER_TIMEOUT). Overrides the shorter limit on unanswered keepalive probes.
void set_patience(int socket, Duration patience);

/// TCP within a host: limits the unread bytes of a connection, so that the system's pages for them
/// stay in the caches (docs/design/009). Between hosts the system's own limit, which follows the
/// network's delay, is kept.
inline constexpr int kLocalQueueBytes = 128 << 10;
/// The limit for channels, whose frames are large and whose ends share cores: with fewer bytes they
/// wait for one another more often (docs/benchmarks/servers.md).
inline constexpr int kLocalFrameBytes = 512 << 10;
void bound_local_queue(int socket, int bytes = kLocalQueueBytes);
/// TCP: limits the sending rate (SO_MAX_PACING_RATE); 0: no limit.
void bound_rate(int socket, std::int64_t bytes_per_second);

/// Throws errno as a ResourceError about `call`.
[[noreturn]] void throw_system_error(const std::string& call);

/// Whether errno says that the call before may succeed later.
bool would_block() noexcept;
/// The same after send_parts(), which also fails with ETOOMANYREFS: the descriptors that this user
/// has sent and nobody has received reach the limit on open files. No event tells when that ends.
bool may_send_later() noexcept;
inline constexpr auto kSendPause = std::chrono::milliseconds(1);  // before the next attempt then

/// Descriptors that came with a message.
struct PassedDescriptors {
  std::vector<Descriptor> descriptors;
  bool cut = false;  // the system dropped some, because this process may open no more
};
/// sendmsg(2) and recvmsg(2) that never block. At most four descriptors go along (SCM_RIGHTS).
/// Without `passed`, the system drops those that come.
ssize_t send_parts(int socket, std::span<iovec> parts, std::span<const int> descriptors = {});
ssize_t receive_parts(int socket, std::span<iovec> parts, PassedDescriptors* passed = nullptr);

/// How long to wait: until `deadline`, or until `cancelled` returns true because the ranks have
/// changed. It is asked every 100 ms.
struct Until {
  Until(TimePoint end, std::function<bool()> is_void = {})
      : deadline(end), cancelled(std::move(is_void)) {}
  /// PeerLost if it is cancelled.
  void check() const;

  TimePoint deadline;
  std::function<bool()> cancelled;
};

/// Waits until poll(2) reports `events` or an error on `descriptor`. Throws TimeoutError whose text
/// names `what`.
void wait_for(Waiter& waiter, int descriptor, short events, const Until& until,
              const std::string& what);
void write_all(Waiter& waiter, int socket, std::span<const std::byte> bytes, const Until& until,
               const std::string& what);
void read_all(Waiter& waiter, int socket, std::span<std::byte> bytes, const Until& until,
              const std::string& what);

/// Listens on a TCP port ("tcp 127.0.0.1:40001", "tcp [::1]:40001"; port 0: the system picks one)
/// or on an abstract unix name ("unix NAME"). Peers pass `address` to dial().
struct Listener {
  Descriptor socket;
  std::string address;
};
Listener listen_tcp(const std::string& host, std::uint16_t port = 0);
/// An empty `name`: a random one.
Listener listen_unix(std::string name = {});
/// Connects to a Listener's address. Unix: RefusedError if another user listens there.
Descriptor dial(Waiter& waiter, const std::string& address, const Until& until);
/// A connection that has arrived, or an empty Descriptor. Unix: closes those of other users.
Descriptor accept_now(const Listener& listener);

}  // namespace trireme::inline v0::net
