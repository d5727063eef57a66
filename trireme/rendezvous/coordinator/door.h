// Door: the listening port of a coordinator. A caller must prove that it knows the job's secret
// (net/handshake.h) before its connection is passed to gRPC. So strangers never reach gRPC, which
// would accept any number of connections and messages.
//
// Its thread accepts callers; open() throws std::system_error if none can start. net/reception.h
// limits what strangers can cost.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "trireme/base/event.h"
#include "trireme/base/waiter.h"
#include "trireme/net/reception.h"
#include "trireme/net/socket.h"

namespace trireme::inline v0::rendezvous {

class Door {
 public:
  /// Accepts no caller before open().
  Door(std::shared_ptr<net::Listener> listener, std::string secret);
  ~Door();
  Door(const Door&) = delete;
  /// "127.0.0.1:40123", "[::1]:40123".
  const std::string& endpoint() const noexcept { return endpoint_; }
  /// `on_guest` takes ownership of each connection, on the door's thread. Call it once.
  void open(std::function<void(Descriptor)> on_guest);
  /// Ends the thread; no caller is accepted afterwards.
  void close() noexcept;

 private:
  void let_in(const std::function<void(Descriptor)>& on_guest);

  const std::shared_ptr<Waiter> waiter_;
  const std::shared_ptr<net::Listener> listener_;
  const std::string endpoint_;
  net::Reception reception_;  // used by the thread from open() on
  std::atomic<bool> closing_{false};
  Event closed_;  // wakes the thread out of a pause
  std::thread thread_;
};

/// A listening TCP port; 0: the system picks one. Throws ResourceError.
net::Listener listen(const std::string& address, std::uint16_t port);
/// The caller's side: connects to the coordinator at `endpoint` ("host:port"), retries while nobody
/// answers, and proves that it knows the secret. Throws ConfigError for a malformed endpoint,
/// RefusedError (11) if the other end does not know the secret, TimeoutError, ResourceError. If it
/// must wait, the log names `who` (observe/wait_notice.h).
Descriptor enter(const std::string& endpoint, const std::string& secret, Duration timeout,
                 const std::string& who = "this process");
/// The same on the clock of `waiter`.
Descriptor enter(Waiter& waiter, const std::string& endpoint, const std::string& secret,
                 Duration timeout, const std::string& who);
/// The first of the ports of `host` at which a coordinator that knows the secret answers now. Waits at
/// most a second for each of its addresses.
std::optional<std::uint16_t> find_coordinator(const std::string& host,
                                              const std::vector<std::uint16_t>& ports,
                                              const std::string& secret);
/// True if such a coordinator answers at the endpoint. False for a bad endpoint.
bool is_coordinator(const std::string& endpoint, const std::string& secret);

}  // namespace trireme::inline v0::rendezvous
