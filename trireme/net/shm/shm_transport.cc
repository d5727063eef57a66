// The transport between processes of one host: rings in shared memory (ring.h), regions passed by
// descriptor, one doorbell per rank. ShmCore does the work; this class owns it.
#include <utility>

#include "trireme/net/errors.h"
#include "trireme/net/mesh_sockets.h"
#include "trireme/net/shm/shm_core.h"

namespace trireme::inline v0::net {
namespace {

class ShmTransport final : public Transport, private HostMemory {
 public:
  ShmTransport(std::shared_ptr<Waiter> waiter, const ConnectOptions& options,
               std::vector<Descriptor> sockets)
      : waiter_(std::move(waiter)),
        core_(std::make_shared<ShmCore>(waiter_, options, std::move(sockets))),
        rank_(options.rank),
        name_(name_of(options, options.rank)),
        size_(options.size) {
    waiter_->add(core_);
  }
  ~ShmTransport() override {
    waiter_->run([core = core_, name = name_] { core->messenger().abort(closed(name)); });
    waiter_->remove(core_.get());
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::shared_ptr<Waiter> waiter() const override { return waiter_; }
  std::string_view name() const noexcept override { return "shm"; }
  Work send(int peer, Tag tag, std::span<const std::byte> bytes) override {
    return core_->messenger().send(peer, tag, bytes);
  }
  Work recv(int peer, Tag tag, std::span<std::byte> bytes) override {
    return core_->messenger().recv(peer, tag, bytes);
  }
  bool lost(int peer) const noexcept override { return core_->messenger().lost(peer); }
  void abort(std::exception_ptr error) noexcept override { core_->messenger().abort(error); }
  Capabilities capabilities() noexcept override { return {.memory = this}; }

 private:
  // HostMemory:
  Region allocate(std::size_t bytes, std::span<const int> peers) override {
    return core_->allocate(bytes, peers);
  }
  bool can_map(int) const noexcept override { return true; }
  std::span<std::byte> map(int peer, RegionId region) override { return core_->map(peer, region); }
  void unmap(int peer, RegionId region) noexcept override { core_->unmap(peer, region); }
  bool read(int peer, std::uintptr_t address, std::span<std::byte> to) override {
    return core_->read(peer, address, to);
  }
  void notify(int peer) noexcept override { core_->notify(peer); }

  const std::shared_ptr<Waiter> waiter_;
  const std::shared_ptr<ShmCore> core_;
  const int rank_, name_, size_;  // `name_`: the rank number that errors print
};

}  // namespace

std::shared_ptr<Transport> make_shm(std::shared_ptr<Waiter> waiter, const ConnectOptions& options,
                                    std::vector<int> sockets) {
  std::vector<Descriptor> owned;
  for (const int socket : sockets) owned.emplace_back(socket);
  return std::make_shared<ShmTransport>(std::move(waiter), options, std::move(owned));
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
  return std::make_shared<ShmTransport>(std::move(waiter), options, std::move(sockets));
}

std::shared_ptr<Transport> join_shm(const Meeting& meeting) {
  return connect_shm(meeting.waiter, meeting.options, meeting.exchange);
}

}  // namespace trireme::inline v0::net
