// Board: what one rank shows its peers in shared memory, and how it reads theirs.
//
// A rank writes only its own board. Operation s uses slot s % 2: a rank posts s + 2 only when all
// have posted s + 1, and so have read s. All counters only grow. The first line of a slot is a
// whole small operation: number, hash of the fingerprint, data. Progress context only, except
// memory that a peer reads. After every change the peers are notified, since they may sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/operation.h"
#include "trireme/net/transport.h"

namespace trireme {
inline namespace v0 {
namespace comm {

/// A buffer inside the arena that all ranks allocated as number `arena`, or, for kOwnAddress, at
/// address `offset` of its rank's own.
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

   private:
    // Few locations lie in the payload: then the peers read one line.
    struct Few {
      std::uint32_t count;
      std::uint32_t arena[3];
      std::uint64_t offset[3];
    };
    static_assert(sizeof(Few) <= Envelope::kPayload);
  };
  Slot slots[2];
  alignas(64) std::atomic<std::uint64_t> done;     // last operation whose results it has written
  alignas(64) std::atomic<std::uint64_t> staged;   // staged direct: pieces copied in …
  alignas(64) std::atomic<std::uint64_t> reduced;  // … and slices reduced
  alignas(64) std::atomic<std::uint64_t> writing;  // operation during which it writes to peers
  alignas(64) std::atomic<std::uint32_t> aborted;  // 1: it has gone, for this reason:
  std::int32_t abort_code;
  std::int32_t abort_peer;  // the rank at fault, -1 if unknown
  char abort_reason[400];
  std::atomic<std::uint32_t> complete;  // 1: it went when all that it had called had ended
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class Board {
 public:
  /// `boards`: every rank's memory as this process sees it. `names`: the numbers by which errors
  /// name the ranks; empty: their own.
  Board(net::Transport& transport, std::vector<BoardMemory*> boards, std::vector<int> names = {})
      : transport_(transport), boards_(std::move(boards)), names_(std::move(names)) {}

  BoardMemory& own() noexcept { return *boards_[transport_.rank()]; }
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
  /// A peer that has gone; -1 if none has.
  int first_aborted() const noexcept;
  /// One that went in the middle of something: what it still had to send will never come.
  int first_given_up() const noexcept;
  /// The error that `rank` gave up with, as this rank reports it.
  std::exception_ptr error_of(int rank) const;
  /// Tells the peers, and waits until none of them writes into this rank's memory any more.
  void abort(const std::exception_ptr& error, Waiter& waiter) noexcept;

 private:
  net::Transport& transport_;
  std::vector<BoardMemory*> boards_;
  const std::vector<int> names_;
};

}  // namespace comm
}  // namespace v0
}  // namespace trireme
