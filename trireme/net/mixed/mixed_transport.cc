// The transport over several hosts. It combines one transport among the ranks of this host (shared
// memory) with one to the ranks of all other hosts (TCP, MPI). The pair alone decides which of them
// carries a message, so messages with one tag stay in order.
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/net/connect.h"
#include "trireme/net/errors.h"

namespace trireme::inline v0::net {
namespace {

class MixedTransport final : public Transport, private HostMemory, private MoveTimes {
 public:
  MixedTransport(std::shared_ptr<Transport> local, const std::vector<int>& local_ranks,
                 std::shared_ptr<Transport> between)
      : local_(std::move(local)),
        between_(std::move(between)),
        memory_(*local_->capabilities().memory),
        moves_(between_->capabilities().moves),
        local_rank_(static_cast<std::size_t>(between_->size()), -1) {
    TRIREME_CHECK(static_cast<int>(local_ranks.size()) == local_->size());
    for (std::size_t i = 0; i < local_ranks.size(); ++i) {
      local_rank_[static_cast<std::size_t>(local_ranks[i])] = static_cast<int>(i);
    }
  }

  int rank() const noexcept override { return between_->rank(); }
  int size() const noexcept override { return between_->size(); }
  std::shared_ptr<Waiter> waiter() const override { return between_->waiter(); }
  std::string_view name() const noexcept override { return "mixed"; }
  Work send(int peer, Tag tag, std::span<const std::byte> bytes) override {
    check_peer(peer, size());
    const int local = local_rank(peer);
    return local >= 0 ? local_->send(local, tag, bytes) : between_->send(peer, tag, bytes);
  }
  Work recv(int peer, Tag tag, std::span<std::byte> bytes) override {
    check_peer(peer, size());
    const int local = local_rank(peer);
    return local >= 0 ? local_->recv(local, tag, bytes) : between_->recv(peer, tag, bytes);
  }
  bool lost(int peer) const noexcept override {
    return local_rank(peer) >= 0 ? local_->lost(local_rank(peer)) : between_->lost(peer);
  }
  void abort(std::exception_ptr error) noexcept override {
    local_->abort(error);
    between_->abort(error);
  }
  Capabilities capabilities() noexcept override {
    return {.memory = this, .moves = moves_ ? this : nullptr};
  }

 private:
  // HostMemory:
  Region allocate(std::size_t bytes, std::span<const int> peers) override {
    std::vector<int> chosen;
    for (const int peer : peers) {
      if (local_rank(peer) >= 0) chosen.push_back(local_rank(peer));
    }
    if (chosen.empty() && !peers.empty()) chosen.push_back(local_->rank());  // only this rank
    return memory_.allocate(bytes, chosen);
  }
  bool can_map(int peer) const noexcept override {
    return local_rank(peer) >= 0 && memory_.can_map(local_rank(peer));
  }
  std::span<std::byte> map(int peer, RegionId region) override {
    check_peer(peer, size());
    return local_rank(peer) >= 0 ? memory_.map(local_rank(peer), region) : std::span<std::byte>();
  }
  void unmap(int peer, RegionId region) noexcept override {
    if (local_rank(peer) >= 0) memory_.unmap(local_rank(peer), region);
  }
  bool read(int peer, std::uintptr_t address, std::span<std::byte> to) override {
    return local_rank(peer) >= 0 && memory_.read(local_rank(peer), address, to);
  }
  void notify(int peer) noexcept override {
    if (local_rank(peer) >= 0) memory_.notify(local_rank(peer));
  }
  // MoveTimes: shared memory has none.
  TimePoint last_moved(int peer) const noexcept override {
    return local_rank(peer) >= 0 ? TimePoint::min() : moves_->last_moved(peer);
  }

  int local_rank(int peer) const noexcept { return local_rank_[static_cast<std::size_t>(peer)]; }

  const std::shared_ptr<Transport> local_, between_;
  HostMemory& memory_;
  const MoveTimes* const moves_;
  std::vector<int> local_rank_;  // by rank; -1: on another host
};

}  // namespace

std::shared_ptr<Transport> connect_mixed(const std::shared_ptr<Waiter>& waiter,
                                         const ConnectOptions& options, const Exchange& exchange,
                                         const std::vector<std::string>& hosts,
                                         const Connect& between) {
  TRIREME_CHECK(static_cast<int>(hosts.size()) == options.size);
  const std::string& here = hosts[static_cast<std::size_t>(options.rank)];
  ConnectOptions within = options;
  ConnectOptions across = options;
  std::vector<int> ranks;
  across.skip.assign(hosts.size(), false);
  for (int rank = 0; rank < options.size; ++rank) {
    if (hosts[static_cast<std::size_t>(rank)] != here) continue;
    if (rank == options.rank) within.rank = static_cast<int>(ranks.size());
    across.skip[static_cast<std::size_t>(rank)] = rank != options.rank;
    ranks.push_back(rank);
  }
  within.size = static_cast<int>(ranks.size());
  within.names.clear();
  for (const int rank : ranks) within.names.push_back(name_of(options, rank));
  bool exchanged = false;  // every rank must take part, even if it is alone on its host
  const Exchange among = [&](const std::string& mine) {
    exchanged = true;
    const std::vector<std::string> all = exchange(mine);
    std::vector<std::string> neighbours;
    for (const int rank : ranks) neighbours.push_back(all[static_cast<std::size_t>(rank)]);
    return neighbours;
  };
  auto local = connect_shm(waiter, within, among);
  if (!exchanged) exchange({});
  return std::make_shared<MixedTransport>(std::move(local), ranks,
                                          between(waiter, across, exchange));
}

std::shared_ptr<Transport> join_mixed(const Meeting& meeting) {
  return connect_mixed(meeting.waiter, meeting.options, meeting.exchange, meeting.hosts,
                       meeting.over_mpi ? meeting.over_mpi : connect_tcp);
}

}  // namespace trireme::inline v0::net
