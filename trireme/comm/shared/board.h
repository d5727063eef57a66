// Board: what one rank publishes to its peers in shared memory, and how it reads their boards.
//
// A rank writes only its own board. Operation s uses slot s % 2: a rank posts s + 2 only after all
// ranks have posted s + 1, and a rank posts s + 1 only after it has read s. All counters only grow.
// The first cache line of a slot holds a whole small operation: number, hash of the fingerprint,
// data. Progress context only. A rank notifies the peers of every change, since they may be asleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/calls/operation.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::comm {

/// The location of a buffer: byte `offset` of arena number `arena`, or, if `arena` is kOwnAddress,
/// address `offset` in its rank's own address space.
struct Location {
  static constexpr std::uint32_t kOwnAddress = ~0u;
  std::uint32_t arena = 0;
  std::uint64_t offset = 0;
};

struct BoardMemory {
  static constexpr std::size_t kMaxLocations = 66;  // 64 terms, out, and one to spare
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> ready;
    std::uint64_t hash;
    std::byte payload[Envelope::kPayload];
    Header header;
    Location more[kMaxLocations];

    /// At most kMaxLocations.
    void put(std::span<const Location> locations) noexcept;
    std::uint32_t num_locations() const noexcept;
    Location location(std::uint32_t index) const noexcept;
    /// True if all announced buffers lie in arenas.
    bool all_mapped() const noexcept;

   private:
    // The first locations lie in the payload, so that peers usually read one cache line only.
    struct Few {
      std::uint32_t count;
      std::uint32_t arena[3];
      std::uint64_t offset[3];
    };
    static_assert(sizeof(Few) <= Envelope::kPayload);
  };
  Slot slots[2];
  alignas(64) std::atomic<std::uint64_t> done;     // last direct call that it has done its part of
  alignas(64) std::atomic<std::uint64_t> staged;   // last piece that it has staged
  alignas(64) std::atomic<std::uint64_t> reduced;  // last piece that it has reduced, or taken
  alignas(64) std::atomic<std::uint64_t> writing;  // call that writes to peers' memory; 0: none
  alignas(64) std::atomic<std::uint32_t> aborted;  // 1: it has left, with the error that follows
  std::int32_t abort_code;
  std::int32_t abort_peer;  // the rank at fault, -1 if unknown
  char abort_reason[400];
  std::atomic<std::uint32_t> complete;  // 1: it left after all its calls had ended
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class Board {
 public:
  /// `boards`: every rank's board, mapped here. `names`: the rank numbers that errors print, if not
  /// those of this group.
  Board(net::HostMemory& memory, int rank, std::vector<BoardMemory*> boards,
        std::vector<int> names = {})
      : memory_(memory), rank_(rank), boards_(std::move(boards)), names_(std::move(names)) {}

  BoardMemory& own() noexcept { return *boards_[rank_]; }
  BoardMemory& of(int rank) noexcept { return *boards_[rank]; }
  BoardMemory::Slot& slot(int rank, std::uint64_t number) noexcept {
    return boards_[rank]->slots[number % 2];
  }
  void notify_peers() noexcept;
  /// True when `counter` of every rank has reached `value`.
  template <class Counter>
  bool all_reached(Counter BoardMemory::*counter, std::uint64_t value) const noexcept {
    for (const BoardMemory* board : boards_) {
      if ((board->*counter).load(std::memory_order_acquire) < value) return false;
    }
    return true;
  }
  /// The first peer that has left; -1 if none has.
  int first_aborted() const noexcept;
  /// The first peer that left with open calls, so that data is missing; -1 if none has.
  int first_given_up() const noexcept;
  /// The error with which `rank` left, worded for this rank.
  std::exception_ptr error_of(int rank) const;
  /// Publishes `error`, then waits (up to 0.5 s) until no peer writes to this rank's memory.
  void abort(const std::exception_ptr& error, Waiter& waiter) noexcept;

 private:
  int size() const noexcept { return static_cast<int>(boards_.size()); }

  net::HostMemory& memory_;
  const int rank_;
  const std::vector<BoardMemory*> boards_;
  const std::vector<int> names_;
};

}  // namespace trireme::inline v0::comm
