// The parts of Engine that use shared memory: set-up, arenas, and headers on the board.
#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/device_backend.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/inline_run.h"
#include "trireme/comm/native/native_backend.h"
#include "trireme/comm/rounds/rounds_backend.h"
#include "trireme/comm/shared/shared_backend.h"
#include "trireme/kernel/prefetch.h"

namespace trireme::inline v0::comm {
namespace {

constexpr int kBriefLooks = 1000;  // some 3 us

}  // namespace

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
  arenas_ = Arenas::make(*transport_, options_.world_ranks);
  if (arenas_) backends_.push_back(std::make_unique<SharedBackend>(*this));
  if (auto native = make_native_backend(*this)) backends_.push_back(std::move(native));
  backends_.push_back(std::make_unique<RoundsBackend>(*this));
  run_and_wait([this] {
    family_->add(shared_from_this());
    if (!arenas_ || broken()) return;
    const net::Region region = arenas_->allocate_board();
    announce(region);
  });
  if (!arenas_) return;
  poller_ = std::make_shared<Poller>(*this);
  waiter_->add(poller_);
}

Arena Engine::allocate(std::size_t bytes, Device device) {
  if (device.kind != DeviceKind::Cpu) {
    if (!device_) refuse_device(device, world_rank(rank_));
    return device_->allocate(bytes, device);
  }
  if (!arenas_) return Arena(net::private_region(bytes));
  net::Region region;
  run_and_wait([&] {
    region = arenas_->allocate(bytes);
    announce(region);
  });
  return Arena(std::move(region));
}

// Announces the region with a call, after which the peers map it. Later calls wait for this one.
void Engine::announce(const net::Region& region) {
  Operation op;
  op.kind = OpKind::Allocate;
  op.count = region.bytes.size();
  op.region = region;
  enqueue(std::make_shared<Call>(std::move(op)));
}

// The engine may have been broken by a nested call; then there is nothing to wait for.
void Engine::wait_for(Waits what) noexcept {
  if (broken()) what = Waits::No;
  waits_ = what;
  pending_.store(what != Waits::No, std::memory_order_release);
}

void Engine::post_header(const std::shared_ptr<Call>& call) {
  call->number = ++board_number_;
  BoardMemory::Slot& slot = board().slot(rank_, call->number);
  slot.header = call->own.header;
  slot.hash = hash_of(call->own.header);
  if (call->inlined) fill_payload(call->operation, rank_, slot.payload);
  if (call->operation.kind == OpKind::Allocate)
    arenas_->announce(call->operation.region, slot.payload);
  if (call->run) call->run->announce();
  slot.ready.store(call->number, std::memory_order_release);
  // While this rank's cache line becomes its own, those of the peers come; then the fence of
  // notify_peers() has little to wait for.
  headers_here(call->number);
  board().notify_peers();
  headers_seen_ = 0;
  wait_for(Waits::Headers);
  if (call->run) call->run->announced();
  if (!broken()) poll_headers(call);
}

int Engine::headers_here(std::uint64_t number) noexcept {
  int here = 0;
  for (int peer = 0; peer < size_; ++peer) {
    here += board().slot(peer, number).ready.load(std::memory_order_acquire) == number;
  }
  return here;
}

bool Engine::nothing_new() noexcept {
  const Call& call = *queue_.front();
  if (waits_ == Waits::Run) return call.run->polled()->waits();
  return headers_here(call.number) == headers_seen_;
}

// Goes on as far as the peers' flags allow; true if it moved. Only if something is waited for.
bool Engine::look() {
  if (nothing_new()) return false;
  const std::shared_ptr<Call> call = queue_.front();  // finish() may release it
  if (waits_ == Waits::Headers) return poll_headers(call);
  const std::shared_ptr<Run> run = call->run;
  return run->polled()->poll();
}

// Ranks that call at the same time hear of one another within a microsecond.
void Engine::look_briefly(const Call& call) {
  if (!waiter_->spins()) return;
  for (int looks = 0; looks < kBriefLooks && !call.ended && waits_ != Waits::No; ++looks) look();
}

// The number of headers that have arrived; -1 if one of them differs. A mismatch fails at once,
// since the missing ranks may never come.
int Engine::check_headers_here(const Call& call) {
  const std::uint64_t hash = board().slot(rank_, call.number).hash;
  int here = 0;
  for (int peer = 0; peer < size_; ++peer) {
    const BoardMemory::Slot& slot = board().slot(peer, call.number);
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
  // All ranks have read this rank's other slot, which the next call writes.
  kernel::prefetch_for_writing(&board().slot(rank_, number + 1), 64);
  const auto ranks = static_cast<std::size_t>(size_);
  std::array<const std::byte*, 16> few;  // saves most groups an allocation
  std::vector<const std::byte*> many(ranks > few.size() ? ranks : 0);
  const std::span payloads = many.empty() ? std::span(few).first(ranks) : std::span(many);
  for (int peer = 0; peer < size_; ++peer) {
    payloads[static_cast<std::size_t>(peer)] = board().slot(peer, number).payload;
  }
  on_agreed(call, payloads);
  return true;
}

bool Engine::poll() {
  if (waits_ == Waits::No) {  // transfers may be open with a peer that has left
    if (broken() || !arenas_->board() || std::count(expected_.begin(), expected_.end(), 0) == size_)
      return false;
    const int gone = board().first_given_up();
    if (gone >= 0) fail(board().error_of(gone));
    return gone >= 0;
  }
  const std::shared_ptr<Engine> keep = leaving_ ? shared_from_this() : nullptr;
  const bool moved = look();
  if (moved || waits_ == Waits::No) return moved;
  int gone = board().first_aborted(), lost = -1;
  for (int peer = 0; gone < 0 && peer < size_; ++peer) {
    if (transport_->lost(peer) && owes(peer)) lost = peer;
  }
  if (gone < 0 && lost < 0) return false;
  // The peer may have left because this operation ended, just after the look above.
  if (look() || waits_ == Waits::No) return true;
  fail(gone >= 0 ? board().error_of(gone)
                 : std::make_exception_ptr(
                       PeerLost("rank " + std::to_string(world_rank(lost)) + "'s process has ended",
                                {.rank = world_rank(rank_),
                                 .peer = world_rank(lost),
                                 .advice = "See that rank's own last lines; resume from the last "
                                           "checkpoint."})));
  return true;
}

}  // namespace trireme::inline v0::comm
