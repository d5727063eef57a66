#include "trireme/comm/shared/board_watch.h"

#include <array>
#include <span>
#include <vector>

#include "trireme/comm/calls/inline_run.h"
#include "trireme/comm/engine.h"
#include "trireme/kernel/prefetch.h"

namespace trireme::inline v0::comm {

constexpr int kBriefLooks = 1000;  // some 3 us

// The engine may have been broken by a nested call; then there is nothing to wait for.
void BoardWatch::wait_for(Waits what) noexcept {
  if (engine_.failure.broken()) what = Waits::No;
  waits_ = what;
  pending_.store(what != Waits::No, std::memory_order_release);
}

void BoardWatch::post(const std::shared_ptr<Call>& call) {
  call->number = ++number_;
  BoardMemory::Slot& slot = engine_.board().slot(engine_.facts.rank, call->number);
  slot.header = call->own.header;
  slot.hash = hash_of(call->own.header);
  if (call->inlined) fill_payload(call->operation, engine_.facts.rank, slot.payload);
  if (call->operation.kind == OpKind::Allocate)
    engine_.arenas->announce(call->operation.region, slot.payload);
  if (call->run) call->run->announce();
  slot.ready.store(call->number, std::memory_order_release);
  // Fetches the peers' cache lines while the store above completes, so that the fence of
  // notify_peers() waits less.
  headers_here(call->number);
  engine_.board().notify_peers();
  headers_seen_ = 0;
  wait_for(Waits::Headers);
  if (call->run) call->run->announced();
  if (!engine_.failure.broken()) poll_headers(call);
}

bool BoardWatch::has_posted(int peer, std::uint64_t number) const noexcept {
  return engine_.board().slot(peer, number).ready.load(std::memory_order_acquire) == number;
}

int BoardWatch::headers_here(std::uint64_t number) const noexcept {
  int here = 0;
  for (int peer = 0; peer < engine_.facts.size; ++peer) here += has_posted(peer, number);
  return here;
}

// The number of headers that have arrived; -1 if one of them differs. A mismatch fails at once,
// since the missing ranks may never come.
int BoardWatch::check_headers_here(const Call& call) {
  Board& board = engine_.board();
  const std::uint64_t hash = board.slot(engine_.facts.rank, call.number).hash;
  int here = 0;
  for (int peer = 0; peer < engine_.facts.size; ++peer) {
    if (!has_posted(peer, call.number)) continue;
    ++here;
    const BoardMemory::Slot& slot = board.slot(peer, call.number);
    if (slot.hash == hash) continue;
    if (const auto error = mismatch_of(call, peer, slot.header, engine_.facts)) {
      engine_.fail(error);
      return -1;
    }
  }
  return here;
}

bool BoardWatch::poll_headers(const std::shared_ptr<Call>& call) {
  const std::uint64_t number = call->number;
  const int here = check_headers_here(*call);
  headers_seen_ = here;
  if (here < engine_.facts.size) return here < 0;
  stop();
  Board& board = engine_.board();
  // All ranks have read this rank's other slot, which the next call writes.
  kernel::prefetch_for_writing(&board.slot(engine_.facts.rank, number + 1), 64);
  const auto ranks = static_cast<std::size_t>(engine_.facts.size);
  std::array<const std::byte*, 16> few;  // saves most groups an allocation
  std::vector<const std::byte*> many(ranks > few.size() ? ranks : 0);
  const std::span payloads = many.empty() ? std::span(few).first(ranks) : std::span(many);
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    payloads[peer] = board.slot(static_cast<int>(peer), number).payload;
  }
  engine_.on_agreed(call, payloads);
  return true;
}

// Goes on as far as the peers' flags allow; true if it moved. Only if something is waited for. An
// exception from the call's run breaks the engine.
bool BoardWatch::look() {
  const std::shared_ptr<Call>& front = engine_.queue.front();
  const bool nothing_new = waits_ == Waits::Run ? front->run->polled()->waits()
                                                : headers_here(front->number) == headers_seen_;
  if (nothing_new) return false;
  const std::shared_ptr<Call> call = front;  // finish() may release it
  const std::shared_ptr<Run> run = call->run;
  try {
    return waits_ == Waits::Headers ? poll_headers(call) : run->polled()->poll();
  } catch (...) {  // there is not enough memory
    engine_.fail(std::current_exception());
    return true;
  }
}

// Ranks that call at the same time see one another's flags within a microsecond.
void BoardWatch::look_briefly(const Call& call) {
  if (!engine_.waiter->spins()) return;
  for (int looks = 0; looks < kBriefLooks && !call.ended && waits_ != Waits::No; ++looks) look();
}

bool BoardWatch::owes(int peer) {
  if (waits_ == Waits::No) return engine_.transfers.with(peer);
  const Call& call = *engine_.queue.front();
  if (waits_ == Waits::Run) return call.run->polled()->owes(peer);
  return !has_posted(peer, call.number);
}

void BoardWatch::transfer_failed(const std::exception_ptr& error) noexcept {
  if (waits_ == Waits::Headers && check_headers_here(*engine_.queue.front()) < 0) return;
  const int gone = engine_.board().first_aborted();
  engine_.fail(gone >= 0 ? engine_.board().error_of(gone) : error);
}

// Transfers may be open with a peer that has left.
bool BoardWatch::look_for_given_up() {
  if (engine_.failure.broken() || !engine_.has_board() || !engine_.transfers.any()) return false;
  const int gone = engine_.board().first_given_up();
  if (gone >= 0) engine_.fail(engine_.board().error_of(gone));
  return gone >= 0;
}

bool BoardWatch::poll() {
  if (waits_ == Waits::No) return look_for_given_up();
  const std::shared_ptr<Engine> keep = engine_.self;
  const bool moved = look();
  if (moved || waits_ == Waits::No) return moved;
  const GroupFacts& facts = engine_.facts;
  int gone = engine_.board().first_aborted(), lost = -1;
  for (int peer = 0; gone < 0 && peer < facts.size; ++peer) {
    if (peer != facts.rank && engine_.transport->lost(peer) && owes(peer)) lost = peer;
  }
  if (gone < 0 && lost < 0) return false;
  // The peer may have left because this operation ended, just after the look above.
  if (look() || waits_ == Waits::No) return true;
  engine_.fail(gone >= 0 ? engine_.board().error_of(gone)
                         : facts.peer_lost(lost, "'s process has ended"));
  return true;
}

}  // namespace trireme::inline v0::comm
