// DirectBase: the base of the direct calls. It holds the call, accesses the buffers that the ranks
// announced for it, and sets the flag that says that this rank writes to its peers' memory. Buffers
// in arenas are mapped; others are read from the peer's address space (HostMemory::read).
//
// A call ends only when all ranks are done, since a rank may leave the group after it. A peer that
// has left because of an error may already have overwritten its buffers. So call look() after the
// last read: if it returns false, the data is not valid and the engine has failed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trireme/comm/engine.h"
#include "trireme/comm/shared/board.h"

namespace trireme::inline v0::comm {

/// Scratch vectors of a direct call, kept to avoid allocations.
struct DirectPointers {
  std::vector<std::byte*> in, out;
  std::vector<const void*> from;
  std::vector<void*> to;
  std::vector<Location> locations;  // this rank's announcement
  std::size_t staged_terms = 0;  // of the last sum through the staging areas: FoldPlan::most_terms
};

/// A call through the ranks' staging areas, piece by piece, if not all memory is mapped.
class Staging {
 public:
  virtual ~Staging() = default;
  /// True if poll() would move nothing.
  virtual bool waits() const = 0;
  /// Goes on as far as the peers allow; true if anything moved.
  virtual bool poll() = 0;
  virtual bool finished() const = 0;
  virtual bool owes(int peer) const = 0;

 protected:
  /// `call` must outlive this.
  Staging(Engine& engine, const Call& call)
      : engine_(engine), call_(call), rank_(engine.facts.rank), size_(engine.facts.size) {}
  /// All operations use the same counters, so a mark holds the number of the call and of the piece.
  std::uint64_t mark(std::size_t piece) const { return call_.number << 24 | (piece + 1); }

  Engine& engine_;
  const Call& call_;
  const int rank_, size_;
};

class DirectBase : public Run, protected PolledRun {
 public:
  DirectBase(Engine& engine, std::shared_ptr<Call> call, DirectPointers& pointers);
  PolledRun* polled() noexcept override { return this; }

 protected:
  bool waits() const final;
  bool poll() final;
  bool owes(int peer) const final;
  const Operation& operation() const noexcept { return call_->operation; }

  /// Adds a buffer to this rank's announcement; false if it lies in no arena.
  bool add(const Buffer& buffer);
  /// Announces what was added.
  void put_locations() { engine_.board().slot(rank_, call_->number).put(pointers_.locations); }

  // After all ranks have announced:
  /// Buffer `index` of `rank` in this process's address space; null if it must be read().
  std::byte* at(int rank, std::uint32_t index) const;
  /// True if the buffer lies in an arena; the same on all ranks.
  bool mapped(int rank, std::uint32_t index) const {
    return location(rank, index).arena != Location::kOwnAddress;
  }
  /// Copies bytes [offset, offset + to.size()) of that buffer to `to`. False if the engine failed.
  bool read(int rank, std::uint32_t index, std::size_t offset, std::span<std::byte> to);
  /// If a peer has left: fails the engine and returns false.
  bool look();
  /// Calls step(begin, count) for blocks of [0, count); step may write to the peers' memory. Before
  /// each block it checks whether a peer has left, since that peer's memory must not be written any
  /// more. Returns false if the engine has failed for this reason.
  bool write_blocks(std::size_t count, std::size_t block, const auto& step) {
    BoardMemory& own = engine_.board().own();
    own.writing.store(call_->number);  // must precede the first read of `aborted` (Board::abort)
    bool going = true;
    for (std::size_t begin = 0; begin < count && going; begin += block) {
      going = engine_.board().first_aborted() < 0;
      if (going) step(begin, std::min(block, count - begin));
    }
    own.writing.store(0, std::memory_order_release);
    return going || look();
  }
  /// Publishes that this rank has done all its reads and writes.
  void declare_done();
  /// Called when all ranks are done, before the call finishes.
  virtual void ended() {}

  Engine& engine_;
  const std::shared_ptr<Call> call_;
  const int rank_, size_;
  DirectPointers& pointers_;
  Staging* staging_ = nullptr;  // null: this call accesses the peers' memory directly

 private:
  bool all_done() const;
  Location location(int rank, std::uint32_t index) const {
    return engine_.board().slot(rank, call_->number).location(index);
  }
};

}  // namespace trireme::inline v0::comm
