#include "trireme/comm/shared/board.h"

#include <sched.h>

#include <cstddef>
#include <cstring>
#include <iterator>

#include "trireme/base/error.h"
#include "trireme/base/shortened.h"

namespace trireme::inline v0::comm {

// The longest time to wait for a peer that is writing a block. Limits the wait for a peer that is
// stopped in a debugger; a peer checks `aborted` before every block.
constexpr Duration kLongestBlock = std::chrono::milliseconds(500);

// Stored at once from a local copy, since reading back this shared cache line would be slow.
void BoardMemory::Slot::put(std::span<const Location> locations) noexcept {
  Few few{static_cast<std::uint32_t>(locations.size()), {}, {}};
  for (std::size_t i = 0; i < locations.size(); ++i) {
    if (i >= std::size(few.arena)) {
      more[i] = locations[i];
      continue;
    }
    few.arena[i] = locations[i].arena;
    few.offset[i] = locations[i].offset;
  }
  std::memcpy(payload, &few, sizeof few);
}

std::uint32_t BoardMemory::Slot::num_locations() const noexcept {
  std::uint32_t count;
  std::memcpy(&count, payload + offsetof(Few, count), sizeof count);
  return count;
}

Location BoardMemory::Slot::location(std::uint32_t index) const noexcept {
  if (index >= std::size(Few{}.arena)) return more[index];
  Location found;
  std::memcpy(&found.arena, payload + offsetof(Few, arena) + 4 * index, 4);
  std::memcpy(&found.offset, payload + offsetof(Few, offset) + 8 * index, 8);
  return found;
}

bool BoardMemory::Slot::all_mapped() const noexcept {
  for (std::uint32_t i = 0; i < num_locations(); ++i) {
    if (location(i).arena == Location::kOwnAddress) return false;
  }
  return true;
}

void Board::notify_peers() noexcept {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_) memory_.notify(peer);
  }
}

int Board::first_aborted() const noexcept {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != rank_ && boards_[rank]->aborted.load()) return rank;
  }
  return -1;
}

int Board::first_given_up() const noexcept {
  for (int rank = 0; rank < size(); ++rank) {
    const BoardMemory& board = *boards_[rank];
    if (rank != rank_ && board.aborted.load() && !board.complete.load()) return rank;
  }
  return -1;
}

std::exception_ptr Board::error_of(int rank) const {
  const BoardMemory& board = *boards_[rank];
  const auto name = [&](int one) { return names_.empty() ? one : names_[one]; };
  const std::string reason(board.abort_reason,
                           strnlen(board.abort_reason, sizeof board.abort_reason));
  return make_error(ExitCode(board.abort_code),
                    "rank " + std::to_string(name(rank)) + " gave up: " + reason,
                    {.rank = name(rank_),
                     .peer = board.abort_peer < 0 ? name(rank) : board.abort_peer,
                     .advice = "See that rank's own last lines."});
}

void Board::abort(const std::exception_ptr& error, Waiter& waiter) noexcept {
  BoardMemory& board = own();
  if (board.aborted.load()) return;
  const ErrorReport report = describe(error);
  board.abort_code = report.exit_code;
  board.abort_peer = report.context.peer;
  constexpr std::size_t kLengthText = 32;  // what shortened() adds
  const std::string reason =
      shortened(report.sentence, sizeof board.abort_reason - 1 - kLengthText);
  std::memcpy(board.abort_reason, reason.c_str(), reason.size() + 1);
  board.aborted.store(1);  // before reading `writing`; a peer stores `writing`, then reads this
  notify_peers();
  const TimePoint until = waiter.now() + kLongestBlock;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_) continue;
    while (boards_[rank]->writing.load() != 0 && waiter.now() < until) sched_yield();
  }
}

}  // namespace trireme::inline v0::comm
