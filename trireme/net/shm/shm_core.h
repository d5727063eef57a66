// ShmCore: carries the frames of a shm transport and shares its memory. It polls the rings, reads
// the sockets and rings the doorbells.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/net/connect.h"
#include "trireme/net/messenger_transport.h"
#include "trireme/net/shm/control.h"
#include "trireme/net/shm/memory.h"
#include "trireme/net/shm/ring.h"

namespace trireme::inline v0::net {

class ShmCore final : public FrameCarrier, public HostMemory {
 public:
  /// Exchanges segments and doorbells over `sockets`. Blocks through the waiter.
  ShmCore(std::shared_ptr<Waiter> waiter, const ConnectOptions& options,
          std::vector<Descriptor> sockets);

  // HostMemory:
  Region allocate(std::size_t bytes, std::span<const int> peers) override;
  bool can_map(int) const noexcept override { return true; }
  std::span<std::byte> map(int peer, RegionId region) override;
  void unmap(int peer, RegionId region) noexcept override;
  bool read(int peer, std::uintptr_t address, std::span<std::byte> to) noexcept override;
  void notify(int peer) noexcept override;
  // ProgressSource:
  bool poll() override;
  int descriptor() const noexcept override { return epoll_.get(); }
  void arm(bool sleeping) noexcept override;

 private:
  // Mapped when it arrives, so that it holds no descriptor, and kept until unmap().
  struct PeerRegion {
    std::shared_ptr<SharedMemory> memory;
    std::exception_ptr failure;  // if it could not be mapped
  };
  class ShmLink final : public Link {
   public:
    ShmLink(ShmCore& core, int peer, Ring* ring) : core_(core), peer_(peer), writer_(ring) {}
    bool try_send(const Frame& frame, std::span<const std::byte> payload) override {
      if (!writer_.put(frame, payload)) return false;
      core_.ring_if_asleep(peer_);
      return true;
    }
    std::size_t try_stream(std::size_t, const Piece& piece) override {
      const std::size_t taken = writer_.put_chunk(piece.id, piece.rest);
      if (taken > 0) core_.ring_if_asleep(peer_);
      return taken;
    }

   private:
    ShmCore& core_;
    const int peer_;
    RingWriter writer_;
  };
  struct Peer {
    Descriptor socket, doorbell;
    std::shared_ptr<SharedMemory> segment;
    std::unique_ptr<ShmLink> link;
    std::unique_ptr<RingReader> reader;
    std::unordered_map<std::uint32_t, PeerRegion> regions;
    pid_t process = 0;     // 0: its memory cannot be read
    bool in_ring = false;  // poll_ring() is on the stack
  };

  Peer& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
  void introduce(const CreatedMemory& segment, const Until& until);
  void meet(int peer, Received& hello);
  void send_region(int peer, const Control& control, const std::vector<int>& descriptors);
  void keep_region(int peer, Received& received);
  [[noreturn]] void refuse(int peer, const std::string& why) const;
  ResourceError no_descriptors(int peer, std::string message) const;
  bool poll_ring(int peer);
  bool take_frame(int peer, RingReader& reader, const RingReader::Entry& entry);
  bool check_sockets();
  void read_socket(int peer);
  void ring_if_asleep(int peer) noexcept;

  const std::shared_ptr<Waiter>& waiter_;
  const ConnectOptions options_;
  std::shared_ptr<SharedMemory> segment_;
  Descriptor doorbell_;
  const Epoll epoll_;  // an event's data: the socket's peer, or this rank for its doorbell
  std::vector<Peer> peers_;
  std::vector<std::byte> scratch_;
  std::unordered_map<std::uint32_t, std::weak_ptr<SharedMemory>> own_regions_;
  std::uint32_t num_regions_ = 0;
  unsigned polls_ = 0;
  bool armed_ = false;
  bool rung_ = false;  // a peer has rung, or is about to ring, the doorbell: drain it
};

}  // namespace trireme::inline v0::net
