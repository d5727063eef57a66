#include "trireme/comm/shared/direct_base.h"

#include <cstring>
#include <utility>

namespace trireme::inline v0::comm {

// read() checks whether a peer has left before each block of this size.
constexpr std::size_t kCopyBytes = std::size_t{1} << 20;

DirectBase::DirectBase(Engine& engine, std::shared_ptr<Call> call, DirectPointers& pointers)
    : engine_(engine),
      call_(std::move(call)),
      rank_(engine.facts.rank),
      size_(engine.facts.size),
      pointers_(pointers) {
  pointers_.locations.clear();
}

bool DirectBase::add(const Buffer& buffer) {
  Location location{Location::kOwnAddress, reinterpret_cast<std::uintptr_t>(buffer.data)};
  const bool mapped = engine_.arenas->locate(buffer.data, buffer.bytes(), location);
  pointers_.locations.push_back(location);
  return mapped;
}

std::byte* DirectBase::at(int rank, std::uint32_t index) const {
  const Location where = location(rank, index);
  if (where.arena != Location::kOwnAddress) {
    return engine_.arenas->at(rank, where.arena) + where.offset;
  }
  return rank == rank_ ? reinterpret_cast<std::byte*>(where.offset) : nullptr;
}

bool DirectBase::read(int rank, std::uint32_t index, std::size_t offset, std::span<std::byte> to) {
  std::byte* const here = at(rank, index);
  const std::uintptr_t there = location(rank, index).offset + offset;
  for (std::size_t done = 0; done < to.size(); done += kCopyBytes) {
    if (!look()) return false;
    const auto block = to.subspan(done, std::min(kCopyBytes, to.size() - done));
    if (here) {
      std::memcpy(block.data(), here + offset + done, block.size());
      continue;
    }
    if (engine_.arenas->read(rank, there + done, block)) continue;
    if (!look()) return false;
    engine_.fail(engine_.facts.peer_lost(rank, " could not be read", "the memory of "));
    return false;
  }
  return true;
}

bool DirectBase::look() {
  const int gone = engine_.board().first_aborted();
  if (gone < 0) return true;
  engine_.fail(engine_.board().error_of(gone));
  return false;
}

void DirectBase::declare_done() {
  engine_.board().own().done.store(call_->number, std::memory_order_release);
  (void)all_done();  // see BoardWatch::post
  engine_.board().notify_peers();
}

// All ranks must be done, not only those that read from this one.
bool DirectBase::all_done() const {
  return engine_.board().all_reached(&BoardMemory::done, call_->number);
}

bool DirectBase::waits() const { return staging_ ? staging_->waits() : !all_done(); }

bool DirectBase::owes(int peer) const {
  if (staging_) return staging_->owes(peer);
  return engine_.board().of(peer).done.load(std::memory_order_acquire) < call_->number;
}

bool DirectBase::poll() {
  const bool moved = staging_ && staging_->poll();
  if (!(staging_ ? staging_->finished() : all_done())) return moved;
  ended();
  engine_.finish(call_);
  return true;
}

}  // namespace trireme::inline v0::comm
