#include "trireme/net/mesh_sockets.h"

#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/handshake.h"
#include "trireme/net/reception.h"

namespace trireme::inline v0::net {
namespace {

bool wanted(const ConnectOptions& options, int peer) {
  return options.skip.empty() || !options.skip[static_cast<std::size_t>(peer)];
}

using Sockets = std::vector<std::vector<Descriptor>>;

bool complete(const ConnectOptions& options, const std::vector<Descriptor>& sockets) {
  return sockets.size() == static_cast<std::size_t>(options.sockets);
}

std::string missing(const ConnectOptions& options, const Sockets& sockets) {
  std::vector<std::string> names;
  for (int peer = options.rank + 1; peer < options.size; ++peer) {
    if (!wanted(options, peer)) continue;
    if (complete(options, sockets[static_cast<std::size_t>(peer)])) continue;
    names.push_back("rank " + std::to_string(name_of(options, peer)));
  }
  return joined(names);
}

[[noreturn]] void rethrow_about(const ConnectOptions& options, int peer) {
  try {
    throw;
  } catch (const Error& error) {
    ErrorContext context = error.context();
    context.rank = name_of(options, options.rank);
    context.peer = name_of(options, peer);
    throw_error(error.code(), error.message(), context);
  }
}

// Dials again if a rank with too many callers drops this one. dial() throws if nobody listens.
std::pair<Descriptor, Identity> dial_rank(Waiter& waiter, const ConnectOptions& options,
                                          const Identity& mine, const std::string& address,
                                          const Until& until) {
  constexpr Duration kPause = std::chrono::milliseconds(10);
  for (;;) {
    Descriptor socket = dial(waiter, address, until);
    try {
      const Identity other = handshake(waiter, socket.get(), true, mine, options.secret, until);
      return {std::move(socket), other};
    } catch (const PeerLost&) {
      until.check();
      if (waiter.now() >= until.deadline) throw;
    }
    waiter.sleep(kPause);
  }
}

// Dials one socket after the other, so that both ends number a pair's sockets alike.
void dial_lower(Waiter& waiter, const ConnectOptions& options, const Identity& mine,
                const std::vector<std::string>& addresses, const Until& until, Sockets& sockets) {
  for (int peer = 0; peer < options.rank; ++peer) {
    if (!wanted(options, peer)) continue;
    const auto at = static_cast<std::size_t>(peer);
    try {
      while (!complete(options, sockets[at])) {
        auto [socket, other] = dial_rank(waiter, options, mine, addresses[at], until);
        if (other.rank != peer)
          throw RefusedError("it says to be rank " + std::to_string(other.rank));
        sockets[at].push_back(std::move(socket));
      }
    } catch (const Error&) {
      rethrow_about(options, peer);
    }
  }
}

// Drops callers that do not belong to the group; only the deadline ends the wait for those that do.
void accept_higher(Waiter& waiter, const ConnectOptions& options, const Identity& mine,
                   const Listener& listener, const Until& until, Sockets& sockets) {
  Reception reception(waiter, listener, mine, options.secret);
  int left = 0;
  for (int peer = options.rank + 1; peer < options.size; ++peer) {
    left += wanted(options, peer) ? options.sockets : 0;
  }
  while (left > 0) {
    auto [socket, other] = reception.next(until, missing(options, sockets) + " to connect");
    const auto at = static_cast<std::size_t>(other.rank);
    if (other.rank <= options.rank || other.rank >= options.size) continue;
    if (complete(options, sockets[at])) continue;
    sockets[at].push_back(std::move(socket));
    --left;
  }
}

// Each address is followed by the number of sockets per pair that its rank uses.
void check_counts(const ConnectOptions& options, const std::vector<std::string>& addresses) {
  for (std::size_t peer = 0; peer < addresses.size(); ++peer) {
    const std::string count = addresses[peer].substr(addresses[peer].rfind(' ') + 1);
    if (count == std::to_string(options.sockets)) continue;
    const int name = name_of(options, static_cast<int>(peer));
    throw ConfigError("this rank has " + std::to_string(options.sockets) +
                          " sockets a pair of ranks, rank " + std::to_string(name) + " has " +
                          count,
                      {.rank = name_of(options, options.rank),
                       .operation = "tcp",
                       .peer = name,
                       .label = "comm.sockets",
                       .advice = "Set TRIREME_COMM_SOCKETS alike on all ranks."});
  }
}

}  // namespace

Sockets connect_all(Waiter& waiter, const ConnectOptions& options, const Exchange& exchange,
                    SocketKind kind) {
  Sockets sockets(static_cast<std::size_t>(options.size));
  if (options.size == 1) return sockets;
  if (kind == SocketKind::Tcp && !is_loopback(options.host) && options.secret.empty()) {
    throw ConfigError("a job that listens on " + options.host + " needs a secret",
                      {.rank = options.rank,
                       .operation = "tcp",
                       .advice = "Set TRIREME_JOB_SECRET_FILE, or listen on 127.0.0.1."});
  }
  const Listener listener = kind == SocketKind::Unix ? listen_unix() : listen_tcp(options.host);
  const std::vector<std::string> addresses =
      exchange(listener.address + " " + std::to_string(options.sockets));
  if (addresses.size() != sockets.size()) {
    throw RefusedError("the exchange gave " + std::to_string(addresses.size()) + " addresses for " +
                           std::to_string(sockets.size()) + " ranks",
                       {.rank = options.rank, .operation = "connect"});
  }
  check_counts(options, addresses);
  const Until until(waiter.now() + options.timeout, options.cancelled);
  const Identity mine{options.epoch, options.rank, options.size, static_cast<std::uint32_t>(kind)};
  dial_lower(waiter, options, mine, addresses, until, sockets);
  accept_higher(waiter, options, mine, listener, until, sockets);
  for (const auto& of_peer : sockets) {
    for (const auto& socket : of_peer) {
      if (kind != SocketKind::Tcp) continue;
      bound_local_queue(socket.get());
      bound_rate(socket.get(), options.rate);
    }
  }
  return sockets;
}

}  // namespace trireme::inline v0::net
