// PeerMemory: the buffers that the ranks announced for one call, as this rank reaches them: mapped
// where they lie in arenas, else read out of the peer's own address space (Transport::read).
//
// Whoever reads here may read what a peer that gave up has overwritten since; so look(), behind the
// last read, says whether one did, and then the engine has failed.
#pragma once

#include <span>

#include "trireme/comm/board.h"

namespace trireme {
inline namespace v0 {
namespace comm {

class Engine;

class PeerMemory {
 public:
  explicit PeerMemory(Engine& engine);
  /// Adds the buffer to what this rank announces; false if it lies in no arena.
  bool add(const Buffer& buffer);
  void announce(BoardMemory::Slot& slot) { slot.put(locations_); }
  /// After all have announced.
  void open(std::uint64_t number) noexcept { number_ = number; }
  std::uint32_t count(int rank) const;
  /// Buffer `index` of `rank` as this process sees it; null where it must be read().
  std::byte* at(int rank, std::uint32_t index) const;
  /// True where it lies in an arena; the same on all ranks.
  bool mapped(int rank, std::uint32_t index) const {
    return location(rank, index).arena != Location::kOwnAddress;
  }
  /// Copies bytes [offset, offset + to.size()) of that buffer. False if the engine has failed.
  bool read(int rank, std::uint32_t index, std::size_t offset, std::span<std::byte> to);
  /// The same of memory at an address of the peer's own.
  bool read_address(int rank, std::uintptr_t address, std::span<std::byte> to);
  /// False, and the engine has failed, if a peer gave up.
  bool look();

 private:
  Location location(int rank, std::uint32_t index) const;

  Engine& engine_;
  std::vector<Location>& locations_;  // this rank's
  std::uint64_t number_ = 0;
};

}  // namespace comm
}  // namespace v0
}  // namespace trireme
