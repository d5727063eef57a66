// Transport: moves bytes between the ranks of a fixed group; knows no tensors.
//
// One Transport belongs to one Waiter and is used in its progress context only (Waiter::run): its
// methods are not thread safe otherwise. Works that it returns settle in that context. Messages
// between one pair with one tag arrive in order; different tags may overtake each other. A send's
// bytes must stay valid until its Work is done, and likewise a receive's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "trireme/base/buffer.h"
#include "trireme/base/check.h"
#include "trireme/base/waiter.h"
#include "trireme/base/work.h"

namespace trireme {
inline namespace v0 {
namespace net {

/// Matches a send with its receive. Communicators use the high half for themselves.
struct Tag {
  std::uint64_t value = 0;
  friend bool operator==(Tag, Tag) = default;
  friend auto operator<=>(Tag, Tag) = default;
};

/// A send of at most this many bytes ends without its receive being posted, as long as few are
/// under way; a larger one may wait for it.
inline constexpr std::size_t kEagerBytes = 4096;

/// What a network may compute by itself.
enum class Reduction : std::uint8_t { Sum, Min, Max, Product };

/// A registration. Every rank numbers its own from 0 in the order of its calls, so ranks that
/// register in the same order may use one id for all.
struct RegionId {
  std::uint32_t value = 0;
};
/// Memory that peers may map. Unregisters (and unmaps) when the last copy goes.
struct Region {
  RegionId id;
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual std::shared_ptr<Waiter> waiter() const = 0;
  /// "shm", "tcp", "sim": for messages and traces.
  virtual std::string_view name() const noexcept = 0;
  virtual Work send(int peer, Tag tag, std::span<const std::byte> bytes) = 0;
  /// Fails with MismatchError if the message's length is not bytes.size().
  virtual Work recv(int peer, Tag tag, std::span<std::byte> bytes) = 0;
  /// Makes memory reachable for peers where the transport can. With bytes.data() == nullptr the
  /// transport provides bytes.size() bytes itself, page aligned and zeroed: memfd memory in shm.
  /// Only `peers` may map it; empty: all.
  virtual Region register_memory(std::span<std::byte> bytes, Device device,
                                 std::span<const int> peers) = 0;
  Region register_memory(std::span<std::byte> bytes, Device device) {
    return register_memory(bytes, device, {});
  }
  /// A peer's region in this process; empty where impossible. The peer must have registered it
  /// before (a message received from it after the registration proves that). The mapping stays
  /// until unmap(), also when the peer has let go of the region.
  virtual std::span<std::byte> map(int peer, RegionId region) = 0;
  /// Ends the mapping of a peer's region; for the own rank, forgets the registration.
  virtual void unmap(int peer, RegionId region) noexcept = 0;
  /// Whether regions that the transport provides for `peer` can be mapped here: true between all
  /// ranks of a set or between none, if it is true for one of them to all others.
  virtual bool can_map(int peer) const noexcept = 0;
  /// Copies what lies at `address` of a peer's own address space to `to`, without its help. False
  /// where that is not possible, or the peer is gone. An empty `to` asks whether it ever is.
  virtual bool read(int peer, std::uintptr_t address, std::span<std::byte> to) {
    (void)peer, (void)address, (void)to;
    return false;
  }
  /// Tells `peer` that mapped memory which it watches has changed: if it sleeps, it wakes and its
  /// ProgressSources are polled. Write the memory first. Costs a fence when the peer is awake.
  virtual void notify(int peer) noexcept = 0;
  /// True once it is known that nothing more will come from `peer` (its process ended, its socket
  /// closed). For those who wait for mapped memory; a pending Work with the peer fails by itself.
  virtual bool lost(int peer) const noexcept = 0;
  /// Whether the network itself reduces elements of `dtype` (MPI's own all-reduce).
  virtual bool can_reduce(DType dtype) const noexcept {
    (void)dtype;
    return false;
  }
  /// The network's own all-reduce over all ranks, in place, in whatever order it adds. All ranks
  /// call it alike, and again when it has ended. Only where can_reduce().
  virtual Work reduce(Reduction, const Buffer& inout) {
    TRIREME_CHECK(can_reduce(inout.dtype));
    return {};
  }
  /// Every pending and every later Work fails now, here, with `error`; peers are not told.
  virtual void abort(std::exception_ptr error) noexcept = 0;
};

}  // namespace net
}  // namespace v0
}  // namespace trireme
