// How a group of ranks gets its Transport: one function per kind, all over one Exchange.
//
// An Exchange all-gathers one short string per rank (the launch module's coordinator provides it).
// The functions are collective and block, through the waiter, up to `timeout`; they throw
// TimeoutError or PeerLost naming the rank that did not come, RefusedError on a wrong secret or
// version, ResourceError when the system has no more descriptors or memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/net/transport.h"

namespace trireme {
inline namespace v0 {
namespace net {

/// Collective: every rank's `mine`, in rank order.
using Exchange = std::function<std::vector<std::string>(const std::string& mine)>;

struct ConnectOptions {
  int rank = 0;
  int size = 1;
  std::string secret;              // the job's; proves that both ends belong to it
  std::string host = "127.0.0.1";  // tcp: the address to listen on, IPv4 or IPv6
  std::uint32_t epoch = 0;         // of the membership; both ends must agree
  Duration timeout = std::chrono::seconds(30);
  /// tcp: how long a peer may take nothing, being in user code for example, before the system ends
  /// the connection.
  Duration patience = std::chrono::minutes(31);
  std::vector<bool> skip = {};  // tcp: peers without a connection; empty: none
  int sockets = 1;              // tcp: a pair of ranks, equal on all; large messages share them
  std::int64_t rate = 0;  // tcp: the most bytes a second that a connection sends; 0: all it can
};

/// All ranks on this host, as processes or threads (each with its own waiter).
std::shared_ptr<Transport> connect_shm(std::shared_ptr<Waiter> waiter,
                                       const ConnectOptions& options, const Exchange& exchange);
/// The same over sockets that are already connected: sockets[peer] is an AF_UNIX stream socket to
/// `peer` (-1 for oneself). Takes them over.
std::shared_ptr<Transport> make_shm(std::shared_ptr<Waiter> waiter, const ConnectOptions& options,
                                    std::vector<int> sockets);
/// Loopback or a network.
std::shared_ptr<Transport> connect_tcp(std::shared_ptr<Waiter> waiter,
                                       const ConnectOptions& options, const Exchange& exchange);

/// How a transport between hosts is made: connect_tcp, for example.
using Connect = std::function<std::shared_ptr<Transport>(
    std::shared_ptr<Waiter> waiter, const ConnectOptions& options, const Exchange& exchange)>;
/// Shared memory among the ranks whose `hosts` are equal, `between` for all other pairs.
std::shared_ptr<Transport> connect_mixed(const std::shared_ptr<Waiter>& waiter,
                                         const ConnectOptions& options, const Exchange& exchange,
                                         const std::vector<std::string>& hosts,
                                         const Connect& between = connect_tcp);

}  // namespace net
}  // namespace v0
}  // namespace trireme
