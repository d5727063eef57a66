// Connects every pair of ranks by authenticated sockets; `options.sockets` per pair.
#pragma once

#include <vector>

#include "trireme/net/connect.h"
#include "trireme/net/socket.h"

namespace trireme::inline v0::net {

enum class SocketKind : std::uint32_t { Unix = 1, Tcp = 2 };

/// Collective. result[peer][i] on this rank and result[rank][i] on `peer` are the two ends of one
/// connection; result[rank] is empty.
std::vector<std::vector<Descriptor>> connect_all(Waiter& waiter, const ConnectOptions& options,
                                                 const Exchange& exchange, SocketKind kind);

}  // namespace trireme::inline v0::net
