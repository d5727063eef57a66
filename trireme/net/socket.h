// Sockets of the transports: an owning descriptor, and waiting for one through a Waiter.
//
// Everything here is for setting connections up; once they stand, transports poll by themselves.
// All sockets are non-blocking and closed on exec. Failures are ResourceError, a deadline that
// passes is TimeoutError, an end that closes is PeerLost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "trireme/base/waiter.h"

namespace trireme {
inline namespace v0 {
namespace net {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) noexcept : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Descriptor();
  int get() const noexcept { return value_; }
  int release() noexcept { return std::exchange(value_, -1); }
  explicit operator bool() const noexcept { return value_ >= 0; }

 private:
  int value_ = -1;
};

/// TCP: how long the system waits for a peer that takes nothing, or has no network any more, before
/// it ends the connection (TCP_USER_TIMEOUT).
void set_patience(int socket, Duration patience);

/// TCP within a host: bounds what is on its way to kLocalQueueBytes, so that the system's pages for
/// it stay in the caches (docs/design/009). Between hosts the system's own choice follows the
/// network's delay and is left.
inline constexpr int kLocalQueueBytes = 128 << 10;
void bound_local_queue(int socket);
/// TCP: the system sends no more a second (SO_MAX_PACING_RATE); 0: no bound.
void bound_rate(int socket, std::int64_t bytes_per_second);

/// errno as a ResourceError about `call`.
[[noreturn]] void throw_system_error(const std::string& call);

/// Waits until poll(2) reports `events` or an error on `descriptor`; throws TimeoutError saying
/// that it waited for `what`.
void wait_for(Waiter& waiter, int descriptor, short events, TimePoint deadline,
              const std::string& what);
void write_all(Waiter& waiter, int socket, std::span<const std::byte> bytes, TimePoint deadline,
               const std::string& what);
void read_all(Waiter& waiter, int socket, std::span<std::byte> bytes, TimePoint deadline,
              const std::string& what);

/// Listens on a port ("tcp 127.0.0.1:40001", "tcp [::1]:40001"; 0: the system picks one) or on an
/// abstract unix name ("unix NAME"); `address` is what peers pass to dial().
struct Listener {
  Descriptor socket;
  std::string address;
};
Listener listen_tcp(const std::string& host, std::uint16_t port = 0);
/// Without a `name`: a fresh one.
Listener listen_unix(std::string name = {});
/// Unix: RefusedError where another user listens.
Descriptor dial(Waiter& waiter, const std::string& address, TimePoint deadline);
/// A connection that has come, or an empty Descriptor. Unix: those of other users are closed
/// unseen.
Descriptor accept_now(const Listener& listener);

}  // namespace net
}  // namespace v0
}  // namespace trireme
