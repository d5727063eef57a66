// Door: the port of a coordinator. Whoever comes first proves to know the job's secret
// (net/handshake.h); only then is the connection given on, to gRPC. A stranger therefore never
// speaks to gRPC, which would take any number of connections and any message below its limit.
//
// A thread of its own lets callers in. The bounds on strangers are those of net/reception.h. Throws
// ResourceError where the port or a thread is refused.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "trireme/base/event.h"
#include "trireme/base/waiter.h"
#include "trireme/net/reception.h"
#include "trireme/net/socket.h"

namespace trireme {
inline namespace v0 {
namespace launch {

class Door {
 public:
  /// Port 0: the system's choice. Nobody is let in before open().
  Door(const std::string& address, std::uint16_t port, std::string secret);
  ~Door();
  Door(const Door&) = delete;
  /// "127.0.0.1:40123", "[::1]:40123".
  const std::string& endpoint() const noexcept { return endpoint_; }
  /// `on_guest` takes each connection over, on the door's thread. Call it once.
  void open(std::function<void(net::Descriptor)> on_guest);
  /// Ends the thread; nobody is let in afterwards.
  void close() noexcept;

 private:
  void let_in(const std::function<void(net::Descriptor)>& on_guest);

  const std::shared_ptr<Waiter> waiter_;
  const net::Listener listener_;
  const std::string endpoint_;
  net::Reception reception_;  // from open() on its thread's
  std::atomic<bool> closing_{false};
  Event closed_;  // ends a pause
  std::thread thread_;
};

/// The other side: connects to the coordinator at `endpoint` ("host:port"), tries again while
/// nobody answers, and proves to know the secret. ConfigError for a malformed endpoint,
/// TimeoutError, RefusedError (11) where the other end does not know the secret, ResourceError.
net::Descriptor enter(const std::string& endpoint, const std::string& secret, Duration timeout);
/// Whether a coordinator that knows the secret is there now. Waits a second at most.
bool is_coordinator(const std::string& endpoint, const std::string& secret);

}  // namespace launch
}  // namespace v0
}  // namespace trireme
