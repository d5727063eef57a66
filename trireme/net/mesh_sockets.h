// Authenticated sockets from every rank to every other, as many a pair as the options say.
// Collective.
#pragma once

#include <vector>

#include "trireme/net/connect.h"
#include "trireme/net/socket.h"

namespace trireme {
inline namespace v0 {
namespace net {

enum class SocketKind : std::uint32_t { Unix = 1, Tcp = 2 };

/// result[peer][i] leads to what is result[rank][i] at `peer`; result[rank] is empty.
std::vector<std::vector<Descriptor>> connect_all(Waiter& waiter, const ConnectOptions& options,
                                                 const Exchange& exchange, SocketKind kind);

}  // namespace net
}  // namespace v0
}  // namespace trireme
