// Headers as messages.
#include <vector>

#include "trireme/comm/calls/inline_run.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/rounds/phase.h"

namespace trireme::inline v0::comm {
namespace {

void on_envelopes(Engine& engine, const std::shared_ptr<Call>& call) {
  call->heard.clear();
  if (call->lost) return engine.fail(call->lost);
  std::vector<const std::byte*> payloads;
  for (const Envelope& envelope : call->envelopes) payloads.push_back(envelope.payload.data());
  engine.on_agreed(call, payloads);
}

}  // namespace

void exchange_headers(Engine& engine, const std::shared_ptr<Call>& call) {
  const Operation& op = call->operation;
  const int rank = engine.facts.rank, size = engine.facts.size;
  const auto self = engine.shared_from_this();
  if (call->inlined) fill_payload(op, rank, call->own.payload.data());
  if (op.kind == OpKind::Allocate) engine.arenas->announce(op.region, call->own.payload.data());
  call->envelopes.resize(static_cast<std::size_t>(size));
  call->envelopes[rank] = call->own;
  call->heard.resize(static_cast<std::size_t>(size));
  auto phase = Phase::open(engine, [self, call] { on_envelopes(*self, call); });
  // All sends come before the receives, so that every peer gets the header even if a receive below
  // finds a mismatch. `posting` defers errors until all receives are posted: a peer that left
  // because of a mismatch may have sent its header before.
  call->posting = true;
  for (int step = 1; step < size; ++step) {
    phase->send((rank + step) % size, tag_of(Purpose::Header),
                std::as_bytes(std::span(&call->own, 1)));
  }
  if (call->run) call->run->announced();
  for (int step = 1; step < size; ++step) {
    const int from = (rank + size - step) % size;
    phase->recv(from, tag_of(Purpose::Header),
                std::as_writable_bytes(std::span(&call->envelopes[from], 1)), [self, call, from] {
                  call->heard[from] = true;
                  if (self->failure.broken()) return;
                  const Header& theirs = call->envelopes[from].header;
                  if (const auto error = mismatch_of(*call, from, theirs, self->facts))
                    self->fail(error);
                });
  }
  call->posting = false;
  for (int peer = 0; peer < size && call->lost; ++peer) {
    if (peer != rank && !call->heard[peer] && engine.transport->lost(peer)) engine.fail(call->lost);
  }
  phase->close();
}

}  // namespace trireme::inline v0::comm
