// The transport over TCP: authenticated connections between every pair of ranks, in one epoll.
//
// A pair with several connections has ended when all of them have, so that no data is lost that was
// sent before the peer left. If one ends first, both ranks stop writing to the others when they see
// it, so all of them end.
#include <sys/epoll.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/net/errors.h"
#include "trireme/net/mesh_sockets.h"
#include "trireme/net/tcp/tcp_link.h"

namespace trireme::inline v0::net {
namespace {

class TcpCore final : public ProgressSource {
 public:
  TcpCore(const std::shared_ptr<Waiter>& waiter, const ConnectOptions& options,
          std::vector<std::vector<Descriptor>> sockets)
      : rank_(options.rank),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        messenger_(options.rank, options.size, waiter),
        peers_(static_cast<std::size_t>(options.size)) {
    if (!epoll_) throw_system_error("epoll_create1");
    for (int peer = 0; peer < options.size; ++peer) {
      if (peer == rank_) continue;
      auto& own = sockets[static_cast<std::size_t>(peer)];
      if (own.empty()) {
        messenger_.lose(peer, "this transport has no connection to it");
        continue;
      }
      at(peer).lanes.resize(own.size());
      at(peer).links = std::make_unique<TcpLinks>(messenger_, peer, std::move(own), unsent_);
      messenger_.attach(peer, at(peer).links.get(), at(peer).lanes.size());
      for (std::size_t lane = 0; lane < at(peer).lanes.size(); ++lane) {
        control(peer, lane, EPOLL_CTL_ADD, EPOLLIN);
      }
    }
  }

  Messenger& messenger() noexcept { return messenger_; }
  bool pending() const noexcept override {
    return messenger_.pending() || unsent_.load(std::memory_order_relaxed);
  }
  int descriptor() const noexcept override { return epoll_.get(); }
  void arm(bool) noexcept override {}  // the sockets are always in the epoll

  bool poll() override {
    epoll_event happened[16];
    const int count = epoll_wait(epoll_.get(), happened, 16, 0);
    bool moved = false;
    for (int i = 0; i < count; ++i) {
      const int peer = static_cast<int>(happened[i].data.u64 >> 32);
      const std::size_t lane = happened[i].data.u64 & 0xffffffffu;
      if (messenger_.lost(peer)) continue;
      if (happened[i].events & ~std::uint32_t{EPOLLOUT}) moved |= read(peer, lane);
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
  struct Lane {
    std::uint32_t events = 0;
    bool ended = false;
  };
  struct Peer {
    std::unique_ptr<TcpLinks> links;
    std::vector<Lane> lanes;
  };

  Peer& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }

  void control(int peer, std::size_t lane, int operation, std::uint32_t events) {
    const std::uint64_t place = static_cast<std::uint64_t>(peer) << 32 | lane;
    epoll_event event{.events = events, .data = {.u64 = place}};
    if (epoll_ctl(epoll_.get(), operation, (*at(peer).links)[lane].socket(), &event) != 0) {
      throw_system_error("epoll_ctl");
    }
    at(peer).lanes[lane].events = events;
  }

  bool read(int peer, std::size_t lane) {
    const char* ended = nullptr;
    const bool moved = (*at(peer).links)[lane].read(ended);
    if (ended == nullptr) return moved;
    end(peer, lane, ended);
    return true;
  }

  void end(int peer, std::size_t lane, const char* why) {
    std::vector<Lane>& lanes = at(peer).lanes;
    TcpLinks& links = *at(peer).links;
    control(peer, lane, EPOLL_CTL_DEL, 0);
    lanes[lane].ended = true;
    const bool at_once = !links[lane].closed();
    bool all = true;
    for (std::size_t one = 0; one < lanes.size(); ++one) {
      if (lanes[one].ended) continue;
      all = false;
      links[one].stop_writing();
      if (at_once) control(peer, one, EPOLL_CTL_DEL, 0);
    }
    if (all || at_once) messenger_.lose(peer, why);
  }

  // Writes what is waiting, then watches for writability only if something is left.
  bool update(int peer, bool& moved) {
    TcpLinks& links = *at(peer).links;
    for (std::size_t lane = 0; lane < links.size(); ++lane) {
      if (links[lane].blocked()) moved |= links[lane].flush();
    }
    if (messenger_.has_output(peer)) moved |= messenger_.pump(peer);
    bool unsent = false;
    for (std::size_t lane = 0; lane < links.size() && !messenger_.lost(peer); ++lane) {
      if (!at(peer).lanes[lane].ended) unsent |= update(peer, lane);
    }
    return unsent;
  }

  bool update(int peer, std::size_t lane) {
    const bool unsent = (*at(peer).links)[lane].blocked();
    const std::uint32_t events = EPOLLIN | (unsent ? std::uint32_t{EPOLLOUT} : 0u);
    if (events != at(peer).lanes[lane].events) control(peer, lane, EPOLL_CTL_MOD, events);
    return unsent;
  }

  const int rank_;
  Descriptor epoll_;
  Messenger messenger_;
  std::atomic<bool> unsent_{false};
  std::vector<Peer> peers_;
};

class TcpTransport final : public Transport, private MoveTimes {
 public:
  TcpTransport(std::shared_ptr<Waiter> waiter, const ConnectOptions& options,
               std::vector<std::vector<Descriptor>> sockets)
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
  bool lost(int peer) const noexcept override { return core_->messenger().lost(peer); }
  void abort(std::exception_ptr error) noexcept override { core_->messenger().abort(error); }
  Capabilities capabilities() noexcept override { return {.moves = this}; }

 private:
  TimePoint last_moved(int peer) const noexcept override {
    return core_->messenger().last_moved(peer);
  }

  const std::shared_ptr<Waiter> waiter_;
  const std::shared_ptr<TcpCore> core_;
  const int rank_, size_;
};

}  // namespace

std::shared_ptr<Transport> connect_tcp(std::shared_ptr<Waiter> waiter,
                                       const ConnectOptions& options, const Exchange& exchange) {
  auto sockets = connect_all(*waiter, options, exchange, SocketKind::Tcp);
  return std::make_shared<TcpTransport>(std::move(waiter), options, std::move(sockets));
}

std::shared_ptr<Transport> join_tcp(const Meeting& meeting) {
  return connect_tcp(meeting.waiter, meeting.options, meeting.exchange);
}

}  // namespace trireme::inline v0::net
