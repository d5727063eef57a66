// Arenas: the memory of a group whose ranks can map one another's. Every rank allocates its arenas
// in the same order, so number i means the same arena on all ranks. Arena 0 holds each rank's board
// and staging area.
//
//     region = allocate(bytes)      on every rank, which then announces it to its peers
//     map(region, announcements)    when all ranks' announcements have arrived
//
// Owned by the engine. Progress context only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/comm/shared/board.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::comm {

/// Size of every rank's staging area, which direct calls use when memory cannot be mapped.
inline constexpr std::size_t kStagingBytes = 2u << 20;

class Arenas {
 public:
  /// Null if not all ranks can map one another's memory, or there is only one rank. `names`: the
  /// rank numbers that errors print, if not those of this group.
  static std::unique_ptr<Arenas> make(net::Transport& transport, std::vector<int> names);
  Arenas(net::HostMemory& memory, int rank, int size, std::vector<int> names);
  Arenas(const Arenas&) = delete;

  net::Region allocate(std::size_t bytes);
  /// The arena with the board, to be announced before all others.
  net::Region allocate_board();
  /// Writes to `payload` (Envelope::kPayload bytes) what peers need to map `region`, and the arenas
  /// that this rank has freed.
  void announce(const net::Region& region, std::byte* payload);
  /// Maps the next arena and unmaps those that were freed. `announced`: all ranks' payloads.
  /// PeerLost if a peer left before its board was mapped; ResourceError.
  void map(const net::Region& own, std::span<const std::byte* const> announced);
  void unmap_all() noexcept;

  /// Null until the first arena is mapped.
  Board* board() noexcept { return board_.get(); }
  /// True if every rank can read every other's memory (HostMemory::read). The same on all ranks.
  bool can_read() const noexcept { return can_read_; }
  bool read(int rank, std::uintptr_t address, std::span<std::byte> to) {
    return memory_.read(rank, address, to);
  }
  /// Start of arena number `arena` of `rank` in this process's address space; null if unmapped.
  std::byte* at(int rank, std::uint32_t arena) const noexcept { return mapped_[arena][rank]; }
  std::byte* staging_of(int rank) const noexcept;
  /// Sets `location` to the place of [data, data + bytes); false if that lies in no arena.
  bool locate(const void* data, std::size_t bytes, Location& location) const;

 private:
  struct Known {
    std::span<std::byte> bytes;
    std::weak_ptr<void> owner;
    bool told = false;  // peers have been told that it is freed
  };
  void make_board();
  void unmap(int peer, std::uint32_t arena) noexcept;

  net::HostMemory& memory_;
  const int rank_, size_;
  const std::vector<int> names_;
  std::vector<Known> known_;
  std::vector<std::vector<std::byte*>> mapped_;                 // [arena][rank]
  std::vector<std::vector<std::optional<net::RegionId>>> ids_;  // [arena][rank]; none: unmapped
  net::Region first_;
  std::unique_ptr<Board> board_;
  bool can_read_ = false;
};

}  // namespace trireme::inline v0::comm
