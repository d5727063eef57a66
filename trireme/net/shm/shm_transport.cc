// The transport between processes of one host: rings in shared memory (ring.h), regions passed by
// descriptor, one doorbell per rank.
#include <memory>
#include <utility>
#include <vector>

#include "trireme/net/mesh_sockets.h"
#include "trireme/net/shm/shm_core.h"

namespace trireme::inline v0::net {
namespace {

std::shared_ptr<Transport> transport_over(std::shared_ptr<Waiter> waiter,
                                          const ConnectOptions& options,
                                          std::vector<Descriptor> sockets) {
  auto core = std::make_shared<ShmCore>(std::move(waiter), options, std::move(sockets));
  const Capabilities capabilities{.memory = core.get()};
  return std::make_shared<MessengerTransport>("shm", std::move(core), capabilities);
}

}  // namespace

std::shared_ptr<Transport> make_shm(std::shared_ptr<Waiter> waiter, const ConnectOptions& options,
                                    std::vector<int> sockets) {
  std::vector<Descriptor> owned;
  for (const int socket : sockets) owned.emplace_back(socket);
  return transport_over(std::move(waiter), options, std::move(owned));
}

std::shared_ptr<Transport> connect_shm(std::shared_ptr<Waiter> waiter,
                                       const ConnectOptions& options, const Exchange& exchange) {
  ConnectOptions one = options;
  one.sockets = 1;
  std::vector<Descriptor> sockets(static_cast<std::size_t>(options.size));
  auto all = connect_all(*waiter, one, exchange, SocketKind::Unix);
  for (std::size_t peer = 0; peer < sockets.size(); ++peer) {
    if (!all[peer].empty()) sockets[peer] = std::move(all[peer].front());
  }
  return transport_over(std::move(waiter), options, std::move(sockets));
}

std::shared_ptr<Transport> join_shm(const Meeting& meeting) {
  return connect_shm(meeting.waiter, meeting.options, meeting.exchange);
}

}  // namespace trireme::inline v0::net
