// The transport over TCP: one authenticated connection per pair of ranks, in one epoll.
#include <sys/epoll.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/net/errors.h"
#include "trireme/net/mesh_sockets.h"
#include "trireme/net/private_region.h"
#include "trireme/net/tcp/tcp_link.h"

namespace trireme {
inline namespace v0 {
namespace net {
namespace {

class TcpCore final : public ProgressSource {
 public:
  TcpCore(const std::shared_ptr<Waiter>& waiter, const ConnectOptions& options,
          std::vector<Descriptor> sockets)
      : rank_(options.rank),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        messenger_(options.rank, options.size, waiter),
        peers_(static_cast<std::size_t>(options.size)) {
    if (!epoll_) throw_system_error("epoll_create1");
    for (int peer = 0; peer < options.size; ++peer) {
      if (peer == rank_) continue;
      if (!sockets[static_cast<std::size_t>(peer)]) {
        messenger_.lose(peer, "this transport has no connection to it");
        continue;
      }
      at(peer).link = std::make_unique<TcpLink>(messenger_, peer,
                                                std::move(sockets[static_cast<std::size_t>(peer)]));
      messenger_.attach(peer, at(peer).link.get());
      control(peer, EPOLL_CTL_ADD, EPOLLIN);
    }
  }

  Messenger& messenger() noexcept { return messenger_; }
  bool pending() const noexcept override {
    return messenger_.pending() || unsent_.load(std::memory_order_relaxed);
  }
  int descriptor() const noexcept override { return epoll_.get(); }
  void arm(bool) noexcept override {}  // the sockets are in the epoll all the time

  bool poll() override {
    epoll_event happened[16];
    const int count = epoll_wait(epoll_.get(), happened, 16, 0);
    bool moved = false;
    for (int i = 0; i < count; ++i) {
      const int peer = static_cast<int>(happened[i].data.u32);
      if (messenger_.lost(peer)) continue;
      if (happened[i].events & ~std::uint32_t{EPOLLOUT}) moved |= read(peer);
    }
    bool unsent = false;
    for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
      if (peer == rank_ || messenger_.lost(peer)) continue;
      unsent |= update(peer, moved);
    }
    unsent_.store(unsent, std::memory_order_relaxed);
    return moved;
  }

 private:
  struct Peer {
    std::unique_ptr<TcpLink> link;
    std::uint32_t events = 0;
  };

  Peer& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }

  void control(int peer, int operation, std::uint32_t events) {
    epoll_event event{.events = events, .data = {.u32 = static_cast<std::uint32_t>(peer)}};
    if (epoll_ctl(epoll_.get(), operation, at(peer).link->socket(), &event) != 0) {
      throw_system_error("epoll_ctl");
    }
    at(peer).events = events;
  }

  bool read(int peer) {
    const char* ended = nullptr;
    const bool moved = at(peer).link->read(ended);
    if (ended == nullptr) return moved;
    control(peer, EPOLL_CTL_DEL, 0);
    messenger_.lose(peer, ended);
    return true;
  }

  // Writes what waits, reads on where room came back, and asks epoll for just what is missing.
  bool update(int peer, bool& moved) {
    TcpLink& link = *at(peer).link;
    if (link.blocked()) moved |= link.flush();
    if (messenger_.has_output(peer)) moved |= messenger_.pump(peer);
    const bool was_full = (at(peer).events & EPOLLIN) == 0;
    if (was_full && !messenger_.full(peer)) {
      moved |= read(peer);
      if (messenger_.lost(peer)) return false;
    }
    const bool unsent = link.blocked();
    const std::uint32_t events = (messenger_.full(peer) ? 0u : std::uint32_t{EPOLLIN}) |
                                 (unsent ? std::uint32_t{EPOLLOUT} : 0u);
    if (events != at(peer).events) control(peer, EPOLL_CTL_MOD, events);
    return unsent;
  }

  const int rank_;
  Descriptor epoll_;
  Messenger messenger_;
  std::vector<Peer> peers_;
  std::atomic<bool> unsent_{false};
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(std::shared_ptr<Waiter> waiter, const ConnectOptions& options,
               std::vector<Descriptor> sockets)
      : waiter_(std::move(waiter)),
        core_(std::make_shared<TcpCore>(waiter_, options, std::move(sockets))),
        rank_(options.rank),
        size_(options.size) {
    waiter_->add(core_);
  }
  ~TcpTransport() override {
    waiter_->run([core = core_, rank = rank_] { core->messenger().abort(closed(rank)); });
    waiter_->remove(core_.get());
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::shared_ptr<Waiter> waiter() const override { return waiter_; }
  std::string_view name() const noexcept override { return "tcp"; }
  Work send(int peer, Tag tag, std::span<const std::byte> bytes) override {
    return core_->messenger().send(peer, tag, bytes);
  }
  Work recv(int peer, Tag tag, std::span<std::byte> bytes) override {
    return core_->messenger().recv(peer, tag, bytes);
  }
  Region register_memory(std::span<std::byte> bytes, Device, std::span<const int>) override {
    return private_region({num_regions_++}, bytes);
  }
  std::span<std::byte> map(int peer, RegionId region) override {
    check_peer(peer, size_);
    TRIREME_CHECK((peer != rank_ || region.value < num_regions_));
    return {};  // peers may be on other hosts
  }
  void unmap(int, RegionId) noexcept override {}
  bool can_map(int) const noexcept override { return false; }
  void notify(int) noexcept override {}
  bool lost(int peer) const noexcept override { return core_->messenger().lost(peer); }
  void abort(std::exception_ptr error) noexcept override { core_->messenger().abort(error); }

 private:
  const std::shared_ptr<Waiter> waiter_;
  const std::shared_ptr<TcpCore> core_;
  const int rank_, size_;
  std::uint32_t num_regions_ = 0;
};

}  // namespace

std::shared_ptr<Transport> connect_tcp(std::shared_ptr<Waiter> waiter,
                                       const ConnectOptions& options, const Exchange& exchange) {
  auto sockets = connect_all(*waiter, options, exchange, SocketKind::Tcp);
  return std::make_shared<TcpTransport>(std::move(waiter), options, std::move(sockets));
}

}  // namespace net
}  // namespace v0
}  // namespace trireme
