// The transport over TCP: authenticated connections between every pair of ranks, in one epoll.
//
// A peer is lost when all connections to it have ended, so that data that it sent before it left
// still arrives. A rank that sees one connection end stops writing to the others, so all of them
// end.
#include <sys/epoll.h>

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "trireme/net/mesh_sockets.h"
#include "trireme/net/messenger_transport.h"
#include "trireme/net/tcp/tcp_link.h"

namespace trireme::inline v0::net {
namespace {

class TcpCore final : public FrameCarrier {
 public:
  TcpCore(std::shared_ptr<Waiter> waiter, const ConnectOptions& options,
          std::vector<std::vector<Descriptor>> sockets)
      : FrameCarrier(options.rank, options.size, std::move(waiter), options.names),
        rank_(options.rank),
        peers_(static_cast<std::size_t>(options.size)) {
    for (int peer = 0; peer < options.size; ++peer) {
      if (peer == rank_) continue;
      auto& own = sockets[static_cast<std::size_t>(peer)];
      if (own.empty()) {
        messenger_.lose(peer, "this transport has no connection to it");
        continue;
      }
      for (std::size_t lane = 0; lane < own.size(); ++lane) {
        at(peer).lanes.emplace_back(messenger_, peer, std::move(own[lane]), unsent_);
        control(peer, lane, EPOLL_CTL_ADD, EPOLLIN);
      }
      messenger_.attach(peer, &at(peer), own.size());
    }
  }

  bool pending() const noexcept override {
    return FrameCarrier::pending() || unsent_.load(std::memory_order_relaxed);
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
      if (messenger_.lost(peer)) {  // perhaps it broke the protocol and goes on sending
        unwatch(peer, lane);
      } else if (happened[i].events & ~std::uint32_t{EPOLLOUT}) {
        moved |= read(peer, lane);
      }
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
    Lane(Messenger& messenger, int peer, Descriptor socket, std::atomic<bool>& unsent)
        : link(messenger, peer, std::move(socket), unsent) {}
    TcpLink link;
    std::uint32_t events = 0;
    bool ended = false;
  };
  // The connections to one peer. The first carries small frames, all share the large messages.
  struct Peer final : Link {
    bool try_send(const Frame& frame, std::span<const std::byte> payload) override {
      return lanes.front().link.try_send(frame, payload);
    }
    std::size_t try_stream(std::size_t lane, const Piece& piece) override {
      return lanes[lane].link.try_stream(lane, piece);
    }
    std::deque<Lane> lanes;
  };

  Peer& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }

  void control(int peer, std::size_t number, int operation, std::uint32_t events) {
    Lane& lane = at(peer).lanes[number];
    epoll_.control(operation, lane.link.socket(), events,
                   static_cast<std::uint64_t>(peer) << 32 | number);
    lane.events = events;
  }
  void unwatch(int peer, std::size_t lane) {
    if (at(peer).lanes[lane].events != 0) control(peer, lane, EPOLL_CTL_DEL, 0);
  }

  bool read(int peer, std::size_t lane) {
    const char* ended = nullptr;
    const bool moved = at(peer).lanes[lane].link.read(ended);
    if (ended == nullptr) return moved;
    end(peer, lane, ended);
    return true;
  }

  void end(int peer, std::size_t lane, const char* why) {
    std::deque<Lane>& lanes = at(peer).lanes;
    unwatch(peer, lane);
    lanes[lane].ended = true;
    const bool at_once = !lanes[lane].link.closed();
    bool all = true;
    for (std::size_t one = 0; one < lanes.size(); ++one) {
      if (lanes[one].ended) continue;
      all = false;
      lanes[one].link.stop_writing();
      if (at_once) unwatch(peer, one);
    }
    if (all || at_once) messenger_.lose(peer, why);
  }

  // Writes what is waiting, then watches for writability only if something is left.
  bool update(int peer, bool& moved) {
    std::deque<Lane>& lanes = at(peer).lanes;
    for (Lane& lane : lanes) {
      if (lane.link.blocked()) moved |= lane.link.flush();
    }
    moved |= messenger_.pump(peer);
    bool unsent = false;
    for (std::size_t lane = 0; lane < lanes.size() && !messenger_.lost(peer); ++lane) {
      if (!lanes[lane].ended) unsent |= update(peer, lane);
    }
    return unsent;
  }

  bool update(int peer, std::size_t number) {
    const Lane& lane = at(peer).lanes[number];
    const bool unsent = lane.link.blocked();
    const std::uint32_t events = EPOLLIN | (unsent ? std::uint32_t{EPOLLOUT} : 0u);
    if (events != lane.events) control(peer, number, EPOLL_CTL_MOD, events);
    return unsent;
  }

  const int rank_;
  const Epoll epoll_;
  std::atomic<bool> unsent_{false};
  std::vector<Peer> peers_;
};

}  // namespace

std::shared_ptr<Transport> connect_tcp(std::shared_ptr<Waiter> waiter,
                                       const ConnectOptions& options, const Exchange& exchange) {
  auto sockets = connect_all(*waiter, options, exchange, SocketKind::Tcp);
  auto core = std::make_shared<TcpCore>(std::move(waiter), options, std::move(sockets));
  const Capabilities capabilities{.moves = &core->messenger()};
  return std::make_shared<MessengerTransport>("tcp", std::move(core), capabilities);
}

std::shared_ptr<Transport> join_tcp(const Meeting& meeting) {
  return connect_tcp(meeting.waiter, meeting.options, meeting.exchange);
}

}  // namespace trireme::inline v0::net
