#include "trireme/comm/shared/peer_memory.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/comm/engine.h"

namespace trireme::inline v0::comm {
namespace {

// The block after which read() checks again whether a peer has left.
constexpr std::size_t kCopyBytes = std::size_t{1} << 20;

}  // namespace

PeerMemory::PeerMemory(Engine& engine, std::vector<Location>& locations)
    : engine_(engine), locations_(locations) {
  locations_.clear();
}

bool PeerMemory::add(const Buffer& buffer) {
  Location location{Location::kOwnAddress, reinterpret_cast<std::uintptr_t>(buffer.data)};
  const bool mapped = engine_.arenas->locate(buffer.data, buffer.bytes(), location);
  locations_.push_back(location);
  return mapped;
}

Location PeerMemory::location(int rank, std::uint32_t index) const {
  return engine_.board().slot(rank, number_).location(index);
}

std::byte* PeerMemory::at(int rank, std::uint32_t index) const {
  const Location where = location(rank, index);
  if (where.arena != Location::kOwnAddress) {
    return engine_.arenas->at(rank, where.arena) + where.offset;
  }
  return rank == engine_.facts.rank ? reinterpret_cast<std::byte*>(where.offset) : nullptr;
}

bool PeerMemory::read(int rank, std::uint32_t index, std::size_t offset, std::span<std::byte> to) {
  std::byte* const here = at(rank, index);
  if (!here) return read_address(rank, location(rank, index).offset + offset, to);
  for (std::size_t done = 0; done < to.size(); done += kCopyBytes) {
    if (!look()) return false;
    std::memcpy(to.data() + done, here + offset + done, std::min(kCopyBytes, to.size() - done));
  }
  return true;
}

bool PeerMemory::read_address(int rank, std::uintptr_t address, std::span<std::byte> to) {
  for (std::size_t done = 0; done < to.size(); done += kCopyBytes) {
    if (!look()) return false;
    const std::size_t bytes = std::min(kCopyBytes, to.size() - done);
    if (engine_.arenas->read(rank, address + done, to.subspan(done, bytes))) continue;
    if (!look()) return false;
    const GroupFacts& facts = engine_.facts;
    const int name = facts.world_rank(rank);
    engine_.fail(std::make_exception_ptr(
        PeerLost("the memory of rank " + std::to_string(name) + " could not be read",
                 {.rank = facts.world_rank(facts.rank),
                  .peer = name,
                  .advice = "See that rank's own last lines; resume from the last checkpoint."})));
    return false;
  }
  return true;
}

bool PeerMemory::look() {
  const int gone = engine_.board().first_aborted();
  if (gone < 0) return true;
  engine_.fail(engine_.board().error_of(gone));
  return false;
}

}  // namespace trireme::inline v0::comm
