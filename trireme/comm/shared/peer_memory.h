// PeerMemory: access to the buffers that the ranks announced for one call. Buffers in arenas are
// mapped; others are read from the peer's address space (HostMemory::read).
//
// A peer that has left may already have overwritten its buffers. So call look() after the last
// read: if it returns false, the data is not valid and the engine has failed.
#pragma once

#include <span>

#include "trireme/comm/shared/board.h"

namespace trireme::inline v0::comm {

class Engine;

class PeerMemory {
 public:
  /// `locations`: scratch for this rank's announcement.
  PeerMemory(Engine& engine, std::vector<Location>& locations);
  /// Adds a buffer to this rank's announcement; false if it lies in no arena.
  bool add(const Buffer& buffer);
  void announce(BoardMemory::Slot& slot) { slot.put(locations_); }
  /// Must be called, after all ranks have announced, before the functions below.
  void open(std::uint64_t number) noexcept { number_ = number; }
  /// Buffer `index` of `rank` in this process's address space; null if it must be read().
  std::byte* at(int rank, std::uint32_t index) const;
  /// True if the buffer lies in an arena; the same on all ranks.
  bool mapped(int rank, std::uint32_t index) const {
    return location(rank, index).arena != Location::kOwnAddress;
  }
  /// Copies bytes [offset, offset + to.size()) of that buffer to `to`. False if the engine failed.
  bool read(int rank, std::uint32_t index, std::size_t offset, std::span<std::byte> to);
  /// As read(), from an address in the peer's address space.
  bool read_address(int rank, std::uintptr_t address, std::span<std::byte> to);
  /// If a peer has left: fails the engine and returns false.
  bool look();

 private:
  Location location(int rank, std::uint32_t index) const;

  Engine& engine_;
  std::vector<Location>& locations_;  // this rank's
  std::uint64_t number_ = 0;
};

}  // namespace trireme::inline v0::comm
