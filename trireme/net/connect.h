// How a group of ranks makes its Transport: by name, or by the function of one kind. All need an
// Exchange.
//
// An Exchange all-gathers one short string per rank (the coordinator of module rendezvous provides
// it). The functions are collective and block, through the waiter, for at most `timeout`. They
// throw TimeoutError or PeerLost naming the missing rank, RefusedError on a wrong secret or
// version, and ResourceError when the system has no descriptors or memory left.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::net {

/// Collective. Returns every rank's `mine`, in rank order.
using Exchange = std::function<std::vector<std::string>(const std::string& mine)>;

struct ConnectOptions {
  int rank = 0;
  int size = 1;
  std::vector<int> names = {};     // by rank: the rank numbers that errors print; empty: the same
  std::string secret;              // the job's secret; proves that both ends belong to the job
  std::string host = "127.0.0.1";  // tcp: the address to listen on, IPv4 or IPv6
  std::uint32_t epoch = 0;         // epoch of the membership; both ends must agree
  Duration timeout = std::chrono::seconds(30);
  /// In an elastic job: true once the ranks have changed. Connecting then ends with PeerLost.
  std::function<bool()> cancelled = {};
  std::vector<bool> skip = {};  // tcp: peers to which no connection is made; empty: none
  int sockets = 1;              // tcp: connections per pair of ranks, equal on all ranks
  std::int64_t rate = 0;        // tcp: limit of a connection's sending rate in bytes/s; 0: no limit
};

/// The number of `rank` that errors print.
inline int name_of(const ConnectOptions& options, int rank) {
  return options.names.empty() ? rank : options.names.at(static_cast<std::size_t>(rank));
}

/// For ranks on one host: processes, or threads (each with its own waiter).
std::shared_ptr<Transport> connect_shm(std::shared_ptr<Waiter> waiter,
                                       const ConnectOptions& options, const Exchange& exchange);
/// The same over connected sockets: sockets[peer] is an AF_UNIX stream socket to `peer` (-1 for
/// this rank). Takes ownership of the sockets.
std::shared_ptr<Transport> make_shm(std::shared_ptr<Waiter> waiter, const ConnectOptions& options,
                                    std::vector<int> sockets);
/// For ranks on one host (over loopback) or on several.
std::shared_ptr<Transport> connect_tcp(std::shared_ptr<Waiter> waiter,
                                       const ConnectOptions& options, const Exchange& exchange);

/// The function that makes a transport between hosts: connect_tcp, for example.
using Connect = std::function<std::shared_ptr<Transport>(
    std::shared_ptr<Waiter> waiter, const ConnectOptions& options, const Exchange& exchange)>;
/// Shared memory between ranks whose entries in `hosts` are equal, `between` for all other pairs.
std::shared_ptr<Transport> connect_mixed(const std::shared_ptr<Waiter>& waiter,
                                         const ConnectOptions& options, const Exchange& exchange,
                                         const std::vector<std::string>& hosts,
                                         const Connect& between = connect_tcp);

/// The facts that the ranks of a job bring to their meeting.
struct Meeting {
  std::shared_ptr<Waiter> waiter;
  ConnectOptions options;
  Exchange exchange;
  std::vector<std::string> hosts;  // of each rank
  Connect over_mpi;                // null if mpirun did not start the ranks
};
/// The transport `name` of base/transports.inc, made by join_NAME() in the transport's folder.
std::shared_ptr<Transport> connect(std::string_view name, const Meeting& meeting);

}  // namespace trireme::inline v0::net
