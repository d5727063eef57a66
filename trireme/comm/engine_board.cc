// The parts of Engine that use shared memory: set-up, arenas, and headers on the board.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/inline_run.h"
#include "trireme/comm/nccl/gpu_group.h"
#include "trireme/comm/rounds/program_run.h"

namespace trireme::inline v0::comm {
namespace {

constexpr std::size_t kLeast = 64;  // of an arena

}  // namespace

// The payload of an Allocate header.
struct Announcement {
  net::RegionId region;
  std::uint32_t can_read;  // 1: this rank can read all peers' memory
};
static_assert(sizeof(Announcement) <= Envelope::kPayload);

// Polls the board while a call waits for it.
class Engine::Poller final : public ProgressSource {
 public:
  explicit Poller(Engine& engine) : engine_(engine) {}
  bool poll() override { return engine_.poll(); }
  bool pending() const noexcept override {
    return engine_.pending_.load(std::memory_order_acquire);
  }
  int descriptor() const noexcept override { return -1; }  // peers notify through the transport
  void arm(bool) noexcept override {}

 private:
  Engine& engine_;
};

std::shared_ptr<Engine> Engine::create(std::shared_ptr<net::Transport> transport,
                                       CommunicatorOptions options,
                                       std::shared_ptr<Family> family) {
  auto engine = std::make_shared<Engine>(std::move(transport), std::move(options), family);
  engine->set_up();
  return engine;
}

void Engine::run_and_wait(const std::function<void()>& task) {
  std::exception_ptr error;
  std::atomic<bool> done{false};
  waiter_->run([&, waiter = waiter_] {
    try {
      task();
    } catch (...) {
      error = std::current_exception();
    }
    done = true;
    waiter->wake();
  });
  if (!done) waiter_->wait_until([&] { return done.load(); }, TimePoint::max());
  if (error) std::rethrow_exception(error);
}

void Engine::set_up() {
  for (int peer = 0; peer < size_; ++peer) {
    can_map_ = (peer == 0 || can_map_) && (peer == rank_ || transport_->can_map(peer));
  }
  can_map_ = can_map_ && size_ > 1;
  run_and_wait([this] {
    family_->add(shared_from_this());
    if (!can_map_ || broken()) return;
    own_region_ = transport_->register_memory(
        {static_cast<std::byte*>(nullptr), kStagingOffset + kStagingBytes}, {});
    (void)add_region(own_region_, own_region_.bytes.size());
  });
  if (!can_map_) return;
  poller_ = std::make_shared<Poller>(*this);
  waiter_->add(poller_);
}

Arena Engine::allocate(std::size_t bytes, Device device) {
  if (device.kind == DeviceKind::Cuda) return allocate_on_gpu(bytes, device);
  Arena arena;
  run_and_wait([&] {
    const int self[] = {rank_};  // if not all ranks can map it, none does
    const net::Region region =
        transport_->register_memory({static_cast<std::byte*>(nullptr), std::max(bytes, kLeast)},
                                    device, can_map_ ? std::span<const int>() : self);
    if (can_map_) {
      (void)add_region(region, region.bytes.size());
    } else {
      transport_->unmap(rank_, region.id);
    }
    arena = Arena(region);
  });
  return arena;
}

Arena Engine::allocate_on_gpu(std::size_t bytes, Device device) {
  if (!gpu_ || device.index != gpu_->gpu()->index()) {
    throw ConfigError("GPU " + std::to_string(device.index) + " is not this rank's",
                      {.rank = world_rank(rank_),
                       .operation = "allocate",
                       .advice = "Use comm.transport nccl, and job.device()."});
  }
  const std::shared_ptr<void> memory = gpu_->gpu()->allocate(bytes);
  gpu_->gpu()->clear(memory.get(), bytes, nullptr);
  return Arena({{}, {static_cast<std::byte*>(memory.get()), bytes}, memory}, device);
}

// A collective arena of which all ranks use only rank 0's part.
SharedRegion Engine::allocate_shared(std::size_t bytes) {
  SharedRegion region;
  Work mapped;
  region.shared = can_map_;
  run_and_wait([&] {
    const int self[] = {rank_};
    const std::size_t here = rank_ == 0 || !can_map_ ? std::max(bytes, kLeast) : kLeast;
    region.own = transport_->register_memory({static_cast<std::byte*>(nullptr), here}, {},
                                             can_map_ ? std::span<const int>() : self);
    region.memory = region.own.bytes.first(std::min(bytes, here));
    region.arena = static_cast<std::uint32_t>(arenas_.size());
    if (can_map_) {
      mapped = add_region(region.own, bytes, shared_from_this());
    } else {
      transport_->unmap(rank_, region.own.id);
    }
  });
  mapped.wait();
  run_and_wait([&] {
    if (!can_map_) return;
    region.memory = {mapped_[region.arena][0], bytes};
    if (mapped_[region.arena][0]) return;
    throw PeerLost("rank " + std::to_string(world_rank(0)) + " left before its memory was mapped",
                   {.rank = world_rank(rank_),
                    .operation = "allocate",
                    .peer = world_rank(0),
                    .advice = "See that rank's own last lines."});
  });
  return region;
}

void Engine::release(const SharedRegion& region) noexcept {
  if (!region.shared) return;
  waiter_->run([self = shared_from_this(), arena = region.arena] {
    for (int peer = 0; peer < self->size_; ++peer) {
      self->transport_->unmap(peer, self->ids_[arena][peer]);
    }
    self->mapped_[arena].assign(static_cast<std::size_t>(self->size_), nullptr);
  });
}

// Announces the region with a call, after which the peers map it. Later calls wait for this one.
Work Engine::add_region(const net::Region& region, std::size_t bytes,
                        std::shared_ptr<WorkOwner> owner) {
  arenas_.push_back({region.bytes, region.owner});
  Operation op;
  op.kind = OpKind::Allocate;
  op.count = bytes;
  op.region = region;
  auto call = std::make_shared<Call>(
      Call{std::move(op), WorkSource(waiter_, std::move(owner), "allocate")});
  Work work = call->source.work();
  enqueue(std::move(call));
  return work;
}

void Engine::fill_announcement(const Operation& op, std::byte* payload) {
  Announcement mine{op.region.id, 1};
  for (int peer = 0; peer < size_; ++peer) {
    if (!transport_->read(peer, 0, {})) mine.can_read = 0;
  }
  std::memcpy(payload, &mine, sizeof mine);
}

void Engine::map_region(const Call& call, std::span<const std::byte* const> payloads) {
  auto& starts = mapped_.emplace_back(static_cast<std::size_t>(size_), nullptr);
  auto& ids = ids_.emplace_back(static_cast<std::size_t>(size_));
  bool can_read = true;
  for (int peer = 0; peer < size_; ++peer) {
    Announcement theirs;
    std::memcpy(&theirs, payloads[static_cast<std::size_t>(peer)], sizeof theirs);
    can_read &= theirs.can_read == 1;
    ids[peer] = theirs.region;
    try {
      starts[peer] = peer == rank_ ? call.operation.region.bytes.data()
                                   : transport_->map(peer, theirs.region).data();
    } catch (const Error&) {  // no address space or memory
      return fail(std::current_exception());
    }
  }
  if (!board_) can_read_ = can_read;
  if (board_) return;  // a peer may already have freed its arena; then it stays unmapped
  const auto gone = std::find(starts.begin(), starts.end(), nullptr) - starts.begin();
  if (gone < size_) {
    return fail(std::make_exception_ptr(
        PeerLost("rank " + std::to_string(world_rank(static_cast<int>(gone))) +
                     " left before its memory could be mapped",
                 {.rank = world_rank(rank_),
                  .peer = world_rank(static_cast<int>(gone)),
                  .advice = "See that rank's own last lines."})));
  }
  std::vector<BoardMemory*> boards;  // zeroed memory is a valid empty board
  for (std::byte* start : starts) {
    boards.push_back(reinterpret_cast<BoardMemory*>(start));
  }
  board_ = std::make_unique<Board>(*transport_, std::move(boards), options_.world_ranks);
}

bool Engine::locate(const void* data, std::size_t bytes, Location& location) const {
  const auto* begin = static_cast<const std::byte*>(data);
  for (std::size_t i = 0; i < mapped_.size(); ++i) {
    const auto [base, size] = std::pair(arenas_[i].bytes.data(), arenas_[i].bytes.size());
    if (begin < base || begin + bytes > base + size || arenas_[i].owner.expired()) continue;
    location = {static_cast<std::uint32_t>(i), static_cast<std::uint64_t>(begin - base)};
    return true;
  }
  return false;
}

bool Engine::all_mapped(int rank, std::uint64_t number) const noexcept {
  const BoardMemory::Slot& slot = board_->slot(rank, number);
  for (std::uint32_t i = 0; i < slot.num_locations(); ++i) {
    if (slot.location(i).arena == Location::kOwnAddress) return false;
  }
  return true;
}

// The engine may have been broken by a nested call; then there is nothing to wait for.
void Engine::wait_for(Waits what) noexcept {
  if (broken()) what = Waits::No;
  waits_ = what;
  pending_.store(what != Waits::No, std::memory_order_release);
}

void Engine::post_header(const std::shared_ptr<Call>& call) {
  call->number = ++board_number_;
  BoardMemory::Slot& slot = board_->slot(rank_, call->number);
  slot.header = call->own.header;
  slot.hash = hash_of(call->own.header);
  if (call->inlined) fill_payload(call->operation, rank_, slot.payload);
  if (call->operation.kind == OpKind::Allocate) {
    fill_announcement(call->operation, slot.payload);
  }
  if (call->direct) call->direct->announce(slot);
  slot.ready.store(call->number, std::memory_order_release);
  board_->notify_peers();
  headers_seen_ = 0;
  wait_for(Waits::Headers);
  if (call->program && call->operation.bytes() <= kSendAhead) call->program->send_ahead();
  if (!broken()) poll_headers(call);
}

bool Engine::nothing_new() const noexcept {
  const Call& call = *queue_.front();
  if (waits_ == Waits::Direct) return call.direct->waits();
  int here = 0;
  for (int peer = 0; peer < size_; ++peer) {
    here += board_->slot(peer, call.number).ready.load(std::memory_order_acquire) == call.number;
  }
  return here == headers_seen_;
}

// The number of headers that have arrived; -1 if one of them differs. A mismatch fails at once,
// since the missing ranks may never come.
int Engine::check_headers_here(const Call& call) {
  const std::uint64_t hash = board_->slot(rank_, call.number).hash;
  int here = 0;
  for (int peer = 0; peer < size_; ++peer) {
    const BoardMemory::Slot& slot = board_->slot(peer, call.number);
    if (slot.ready.load(std::memory_order_acquire) != call.number) continue;
    ++here;
    if (slot.hash != hash && !check_header(call, peer, slot.header)) return -1;
  }
  return here;
}

bool Engine::poll_headers(const std::shared_ptr<Call>& call) {
  const std::uint64_t number = call->number;
  const int here = check_headers_here(*call);
  headers_seen_ = here;
  if (here < size_) return here < 0;
  wait_for(Waits::No);
  const auto ranks = static_cast<std::size_t>(size_);
  std::array<const std::byte*, 16> few;  // saves most groups an allocation
  std::vector<const std::byte*> many(ranks > few.size() ? ranks : 0);
  const std::span payloads = many.empty() ? std::span(few).first(ranks) : std::span(many);
  for (int peer = 0; peer < size_; ++peer) {
    payloads[static_cast<std::size_t>(peer)] = board_->slot(peer, number).payload;
  }
  on_agreed(call, payloads);
  return true;
}

bool Engine::poll() {
  if (waits_ == Waits::No) {  // transfers may be open with a peer that has left
    if (broken() || !board_ || std::count(expected_.begin(), expected_.end(), 0) == size_)
      return false;
    const int gone = board_->first_given_up();
    if (gone >= 0) fail(board_->error_of(gone));
    return gone >= 0;
  }
  const std::shared_ptr<Engine> keep = leaving_ ? shared_from_this() : nullptr;
  const auto look = [this] {
    if (nothing_new()) return false;
    const std::shared_ptr<Call> call = queue_.front();  // finish() may release it
    if (waits_ == Waits::Headers) return poll_headers(call);
    const std::shared_ptr<DirectCall> direct = call->direct;
    return direct->poll();
  };
  const bool moved = look();
  if (moved || waits_ == Waits::No) return moved;
  int gone = board_->first_aborted(), lost = -1;
  for (int peer = 0; gone < 0 && peer < size_; ++peer) {
    if (transport_->lost(peer) && owes(peer)) lost = peer;
  }
  if (gone < 0 && lost < 0) return false;
  // The peer may have left because this operation ended, just after the look above.
  if (look() || waits_ == Waits::No) return true;
  fail(gone >= 0 ? board_->error_of(gone)
                 : std::make_exception_ptr(
                       PeerLost("rank " + std::to_string(world_rank(lost)) + "'s process has ended",
                                {.rank = world_rank(rank_),
                                 .peer = world_rank(lost),
                                 .advice = "See that rank's own last lines; resume from the last "
                                           "checkpoint."})));
  return true;
}

}  // namespace trireme::inline v0::comm
