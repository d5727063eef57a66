// Transport: moves bytes between the ranks of a fixed group. It does not know tensors.
//
// One Transport belongs to one Waiter and is used in its progress context only (Waiter::run);
// otherwise its methods are not thread safe. Works that it returns settle in that context. Messages
// between one pair with one tag arrive in order; messages with different tags may overtake each
// other. The bytes of a send or a receive must stay valid until its Work is done.
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

namespace trireme::inline v0::net {

/// Matches a send with its receive. Communicators use the high half for their own messages.
struct Tag {
  std::uint64_t value = 0;
  friend bool operator==(Tag, Tag) = default;
  friend auto operator<=>(Tag, Tag) = default;
};

/// A send of at most this many bytes completes without a posted receive, as long as few such
/// messages are in transit. A larger send may wait for its receive.
inline constexpr std::size_t kEagerBytes = 4096;

/// Reductions that a network may compute itself.
enum class Reduction : std::uint8_t { Sum, Min, Max, Product };

/// Id of a registration. Every rank numbers its own regions from 0 in the order of its calls, so
/// ranks that register in the same order may use one id for all.
struct RegionId {
  std::uint32_t value = 0;
};
/// Memory that peers may map. The registration (and mapping) ends when the last copy is destroyed.
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
  /// "shm", "tcp", "sim": used in messages and traces.
  virtual std::string_view name() const noexcept = 0;
  virtual Work send(int peer, Tag tag, std::span<const std::byte> bytes) = 0;
  /// Fails with MismatchError if the message's length is not bytes.size().
  virtual Work recv(int peer, Tag tag, std::span<std::byte> bytes) = 0;
  /// Makes memory accessible to peers if the transport can. If bytes.data() is nullptr, the
  /// transport allocates bytes.size() bytes, page-aligned and zeroed (shm: a memfd). Only `peers`
  /// may map it; empty: all peers.
  virtual Region register_memory(std::span<std::byte> bytes, Device device,
                                 std::span<const int> peers) = 0;
  Region register_memory(std::span<std::byte> bytes, Device device) {
    return register_memory(bytes, device, {});
  }
  /// Maps a peer's region into this process; empty if impossible. The peer must have registered it
  /// before; a message received from the peer after its registration proves that. The mapping stays
  /// until unmap(), even if the peer releases the region.
  virtual std::span<std::byte> map(int peer, RegionId region) = 0;
  /// Ends the mapping of a peer's region. For this rank's own region, forgets the registration.
  virtual void unmap(int peer, RegionId region) noexcept = 0;
  /// Whether memory that `peer` lets the transport allocate can be mapped here. In a set of ranks,
  /// if it is true from one rank to all others, it is true between all of them.
  virtual bool can_map(int peer) const noexcept = 0;
  /// Copies bytes at `address` of a peer's address space to `to`, without the peer's help. False if
  /// that is impossible or the peer is gone. An empty `to` asks whether it is possible at all.
  virtual bool read(int peer, std::uintptr_t address, std::span<std::byte> to) {
    (void)peer, (void)address, (void)to;
    return false;
  }
  /// Tells `peer` that mapped memory which it polls has changed: if it sleeps, it wakes and polls
  /// its ProgressSources. Write the memory first. Costs a fence if the peer is awake.
  virtual void notify(int peer) noexcept = 0;
  /// True once it is known that nothing more will arrive from `peer` (its process ended, its socket
  /// closed). For code that polls mapped memory; a pending Work with the peer fails by itself.
  virtual bool lost(int peer) const noexcept = 0;
  /// Whether the network itself can reduce elements of `dtype` (MPI's all-reduce).
  virtual bool can_reduce(DType dtype) const noexcept {
    (void)dtype;
    return false;
  }
  /// The network's own all-reduce over all ranks, in place; the network chooses the order of
  /// additions. All ranks must make the same calls, one at a time. Only if can_reduce().
  virtual Work reduce(Reduction, const Buffer& inout) {
    TRIREME_CHECK(can_reduce(inout.dtype));
    return {};
  }
  /// Fails every pending and later Work on this rank with `error`; peers are not told.
  virtual void abort(std::exception_ptr error) noexcept = 0;
};

}  // namespace trireme::inline v0::net
