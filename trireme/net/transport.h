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
#include "trireme/base/clock.h"
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

/// Id of a region. Every rank numbers its own regions from 0 in the order of its calls, so ranks
/// that allocate in the same order may use one id for all.
struct RegionId {
  std::uint32_t value = 0;
};
/// Memory that peers may map. It is released when the last copy is destroyed.
struct Region {
  RegionId id;
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

/// Memory that ranks of one host share. Progress context only.
class HostMemory {
 public:
  /// Allocates memory, page-aligned and zeroed, that `peers` may map; empty: all peers.
  virtual Region allocate(std::size_t bytes, std::span<const int> peers) = 0;
  /// Whether memory that `peer` allocates can be mapped here. If one rank of a set can map the
  /// memory of all others, so can every rank of the set.
  virtual bool can_map(int peer) const noexcept = 0;
  /// Maps a peer's region into this process; empty if impossible. The peer must have allocated it
  /// before; a message received from the peer after its allocation proves that. The mapping stays
  /// until unmap(), even if the peer releases the region. ResourceError if this process had no
  /// descriptor or no address space left for it.
  virtual std::span<std::byte> map(int peer, RegionId region) = 0;
  /// Ends the mapping of a peer's region, or forgets the id of a region of this rank.
  virtual void unmap(int peer, RegionId region) noexcept = 0;
  /// Copies bytes at `address` of a peer's address space to `to`, without the peer's help. False if
  /// that is impossible or the peer is gone. An empty `to` asks whether it is possible at all.
  virtual bool read(int peer, std::uintptr_t address, std::span<std::byte> to) = 0;
  /// Tells `peer` that mapped memory which it polls has changed: if it sleeps, it wakes and polls
  /// its ProgressSources. Write the memory first. Costs a fence if the peer is awake.
  virtual void notify(int peer) noexcept = 0;

 protected:
  ~HostMemory() = default;
};

/// Reductions that a network may compute itself.
enum class Reduction : std::uint8_t { Sum, Min, Max, Product };

/// A network that reduces itself (MPI's all-reduce).
class Reducer {
 public:
  virtual bool can_reduce(DType dtype) const noexcept = 0;
  /// All-reduces over all ranks, in place; the network chooses the order of additions. All ranks
  /// must make the same calls, one at a time. Only if can_reduce(). Progress context only.
  virtual Work reduce(Reduction reduction, const Buffer& inout) = 0;

 protected:
  ~Reducer() = default;
};

/// A network that knows when bytes last moved. `timeout` bounds silence, not work: a wait continues
/// while bytes move, however slow the network is.
class MoveTimes {
 public:
  /// The last time that bytes moved to or from `peer`, on the waiter's clock; TimePoint::min() if
  /// none did. Small messages that were sent at once may not count. Any thread.
  virtual TimePoint last_moved(int peer) const noexcept = 0;

 protected:
  ~MoveTimes() = default;
};

/// Abilities that only some transports have, such as mapping a peer's memory; null: not this one.
/// The pointers are valid while the transport lives.
struct Capabilities {
  HostMemory* memory = nullptr;
  Reducer* reducer = nullptr;
  const MoveTimes* moves = nullptr;
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
  /// True once it is known that nothing more will arrive from `peer` (its process ended, its socket
  /// closed). For code that polls mapped memory; a pending Work with the peer fails by itself.
  virtual bool lost(int peer) const noexcept = 0;
  /// Fails every pending and later Work on this rank with `error`; peers are not told.
  virtual void abort(std::exception_ptr error) noexcept = 0;
  /// Any thread.
  virtual Capabilities capabilities() noexcept = 0;
};

/// When bytes last moved between this rank and any peer; TimePoint::min() if unknown. Any thread.
TimePoint last_moved(Transport& transport) noexcept;

/// Memory of this process alone, page-aligned and zeroed. ResourceError.
Region private_region(std::size_t bytes);

}  // namespace trireme::inline v0::net
