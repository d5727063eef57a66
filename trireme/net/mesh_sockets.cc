#include "trireme/net/mesh_sockets.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/net/handshake.h"
#include "trireme/net/reception.h"

namespace trireme {
inline namespace v0 {
namespace net {
namespace {

bool wanted(const ConnectOptions& options, int peer) {
  return options.skip.empty() || !options.skip[static_cast<std::size_t>(peer)];
}

std::string missing(const ConnectOptions& options, const std::vector<Descriptor>& sockets) {
  std::string names;
  for (int peer = options.rank + 1; peer < options.size; ++peer) {
    if (sockets[static_cast<std::size_t>(peer)] || !wanted(options, peer)) continue;
    names += (names.empty() ? "rank " : ", rank ") + std::to_string(peer);
  }
  return names;
}

[[noreturn]] void rethrow_about(int rank, int peer) {
  try {
    throw;
  } catch (const Error& error) {
    ErrorContext context = error.context();
    context.rank = rank;
    context.peer = peer;
    throw_error(error.code(), error.message(), context);
  }
}

void dial_lower(Waiter& waiter, const ConnectOptions& options, const Identity& mine,
                const std::vector<std::string>& addresses, TimePoint deadline,
                std::vector<Descriptor>& sockets) {
  for (int peer = 0; peer < options.rank; ++peer) {
    if (!wanted(options, peer)) continue;
    const auto at = static_cast<std::size_t>(peer);
    try {
      sockets[at] = dial(waiter, addresses[at], deadline);
      const Identity other =
          handshake(waiter, sockets[at].get(), true, mine, options.secret, deadline);
      if (other.rank != peer)
        throw RefusedError("it says to be rank " + std::to_string(other.rank));
    } catch (const Error&) {
      rethrow_about(options.rank, peer);
    }
  }
}

// Strangers are dropped; only the deadline ends the search for the real ones.
void accept_higher(Waiter& waiter, const ConnectOptions& options, const Identity& mine,
                   const Listener& listener, TimePoint deadline, std::vector<Descriptor>& sockets) {
  Reception reception(waiter, listener, mine, options.secret);
  int left = 0;
  for (int peer = options.rank + 1; peer < options.size; ++peer) left += wanted(options, peer);
  while (left > 0) {
    auto [socket, other] = reception.next(deadline, missing(options, sockets) + " to connect");
    const auto at = static_cast<std::size_t>(other.rank);
    if (other.rank <= options.rank || other.rank >= options.size || sockets[at]) continue;
    sockets[at] = std::move(socket);
    --left;
  }
}

}  // namespace

std::vector<Descriptor> connect_all(Waiter& waiter, const ConnectOptions& options,
                                    const Exchange& exchange, SocketKind kind) {
  std::vector<Descriptor> sockets(static_cast<std::size_t>(options.size));
  if (options.size == 1) return sockets;
  if (kind == SocketKind::Tcp && !is_loopback(options.host) && options.secret.empty()) {
    throw ConfigError("a job that listens on " + options.host + " needs a secret",
                      {.rank = options.rank,
                       .operation = "tcp",
                       .advice = "Set TRIREME_JOB_SECRET_FILE, or listen on 127.0.0.1."});
  }
  const Listener listener = kind == SocketKind::Unix ? listen_unix() : listen_tcp(options.host);
  const std::vector<std::string> addresses = exchange(listener.address);
  if (addresses.size() != sockets.size()) {
    throw RefusedError("the exchange gave " + std::to_string(addresses.size()) + " addresses for " +
                           std::to_string(sockets.size()) + " ranks",
                       {.rank = options.rank, .operation = "connect"});
  }
  const TimePoint deadline = waiter.now() + options.timeout;
  const Identity mine{options.epoch, options.rank, options.size, static_cast<std::uint32_t>(kind)};
  dial_lower(waiter, options, mine, addresses, deadline, sockets);
  accept_higher(waiter, options, mine, listener, deadline, sockets);
  return sockets;
}

}  // namespace net
}  // namespace v0
}  // namespace trireme
