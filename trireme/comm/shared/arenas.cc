#include "trireme/comm/shared/arenas.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::inline v0::comm {
namespace {

constexpr std::size_t kLeast = 64;  // of an arena
constexpr std::size_t kStagingOffset = (sizeof(BoardMemory) + 4095) / 4096 * 4096;

constexpr std::uint32_t kNoArena = ~0u;

struct Announcement {
  net::RegionId region;
  std::uint32_t can_read;   // 1: this rank can read all peers' memory
  std::uint32_t freed[10];  // arenas; further ones are told the next time
};
static_assert(sizeof(Announcement) <= Envelope::kPayload);

}  // namespace

std::unique_ptr<Arenas> Arenas::make(net::Transport& transport, std::vector<int> names) {
  net::HostMemory* const memory = transport.capabilities().memory;
  const int rank = transport.rank(), size = transport.size();
  bool all = memory != nullptr && size > 1;
  for (int peer = 0; all && peer < size; ++peer) all = peer == rank || memory->can_map(peer);
  return all ? std::make_unique<Arenas>(*memory, rank, size, std::move(names)) : nullptr;
}

Arenas::Arenas(net::HostMemory& memory, int rank, int size, std::vector<int> names)
    : memory_(memory), rank_(rank), size_(size), names_(std::move(names)) {}

void Arenas::unmap_all() noexcept {
  for (std::uint32_t arena = 0; arena < ids_.size(); ++arena) {
    for (int peer = 0; peer < size_; ++peer) unmap(peer, arena);
  }
}

void Arenas::unmap(int peer, std::uint32_t arena) noexcept {
  if (const auto id = std::exchange(ids_[arena][peer], std::nullopt)) memory_.unmap(peer, *id);
  mapped_[arena][peer] = nullptr;
}

net::Region Arenas::allocate(std::size_t bytes) {
  const net::Region region = memory_.allocate(std::max(bytes, kLeast), {});
  known_.push_back({region.bytes, region.owner});
  return region;
}

net::Region Arenas::allocate_board() { return first_ = allocate(kStagingOffset + kStagingBytes); }

std::byte* Arenas::staging_of(int rank) const noexcept { return at(rank, 0) + kStagingOffset; }

void Arenas::announce(const net::Region& region, std::byte* payload) {
  Announcement mine{region.id, 1, {}};
  auto next = known_.begin();
  for (std::uint32_t& arena : mine.freed) {
    next = std::find_if(next, known_.end(),
                        [](const Known& one) { return !one.told && one.owner.expired(); });
    arena = next == known_.end() ? kNoArena : static_cast<std::uint32_t>(next - known_.begin());
    if (next != known_.end()) next->told = true;
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (!memory_.read(peer, 0, {})) mine.can_read = 0;
  }
  std::memcpy(payload, &mine, sizeof mine);
}

void Arenas::map(const net::Region& own, std::span<const std::byte* const> announced) {
  auto& starts = mapped_.emplace_back(static_cast<std::size_t>(size_), nullptr);
  auto& ids = ids_.emplace_back(static_cast<std::size_t>(size_));
  bool can_read = true;
  for (int peer = 0; peer < size_; ++peer) {
    Announcement theirs;
    std::memcpy(&theirs, announced[static_cast<std::size_t>(peer)], sizeof theirs);
    can_read &= theirs.can_read == 1;
    ids[peer] = theirs.region;
    for (const std::uint32_t arena : theirs.freed)
      if (arena < ids_.size()) unmap(peer, arena);
    starts[peer] = peer == rank_ ? own.bytes.data() : memory_.map(peer, theirs.region).data();
  }
  if (board_) return;  // a peer may already have freed its arena; then it stays unmapped
  can_read_ = can_read;
  make_board();
}

void Arenas::make_board() {
  const auto& starts = mapped_.front();
  const auto name = [&](int rank) { return names_.empty() ? rank : names_[rank]; };
  const auto gone = std::find(starts.begin(), starts.end(), nullptr) - starts.begin();
  if (gone < size_) {
    const int lost = name(static_cast<int>(gone));
    throw PeerLost(
        "rank " + std::to_string(lost) + " left before its memory could be mapped",
        {.rank = name(rank_), .peer = lost, .advice = "See that rank's own last lines."});
  }
  std::vector<BoardMemory*> boards;  // zeroed memory is a valid empty board
  for (std::byte* start : starts) boards.push_back(reinterpret_cast<BoardMemory*>(start));
  board_ = std::make_unique<Board>(memory_, rank_, std::move(boards), names_);
}

bool Arenas::locate(const void* data, std::size_t bytes, Location& location) const {
  const auto* begin = static_cast<const std::byte*>(data);
  for (std::size_t i = 0; i < mapped_.size(); ++i) {
    const auto [base, size] = std::pair(known_[i].bytes.data(), known_[i].bytes.size());
    if (begin < base || begin + bytes > base + size || known_[i].owner.expired()) continue;
    location = {static_cast<std::uint32_t>(i), static_cast<std::uint64_t>(begin - base)};
    return true;
  }
  return false;
}

}  // namespace trireme::inline v0::comm
