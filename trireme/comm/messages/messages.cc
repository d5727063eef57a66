#include "trireme/comm/messages/messages.h"

#include "trireme/base/error.h"
#include "trireme/comm/device/device_backend.h"
#include "trireme/comm/engine.h"

namespace trireme::inline v0::comm {
namespace {

constexpr std::uint64_t kUserTags = 3ull << 62;  // then the user's tag << 8, then header or data

net::Tag head_tag(const Operation& op) { return {kUserTags | std::uint64_t(op.user_tag) << 8}; }
net::Tag body_tag(const Operation& op) { return {head_tag(op).value | 1}; }

}  // namespace

// Header and data are sent together; the receiver checks the header before it receives the data.
void Messages::run(const std::shared_ptr<Call>& call) {
  Operation& op = call->operation;
  const int peer = op.root;
  const bool sends = op.kind == OpKind::Send;
  op.root = static_cast<int>(op.user_tag);
  call->own.header = header_of(op, engine_.facts.options.epoch);
  call->envelopes.resize(1);
  ++open_;
  if (engine_.trace) engine_.trace->begun(call->times);
  engine_.transfers.expect(peer, 1);
  if (!sends) return receive(call, peer);
  op.on_device ? engine_.device->send(call, peer, head_tag(op)) : send(call, peer);
}

bool Messages::went_well(Call& call, const std::exception_ptr& error) {
  if (error) engine_.fail(error, &call.operation);
  if (engine_.failure.broken()) call.end(engine_.failure.error());
  return !engine_.failure.broken();
}

void Messages::end(const std::shared_ptr<Call>& call, int peer) {
  engine_.transfers.expect(peer, -1);
  ended(call, peer);
  engine_.staged->deliver(call);
}

void Messages::send(const std::shared_ptr<Call>& call, int peer) {
  const Operation& op = call->operation;
  const auto self = engine_.shared_from_this();
  const Work works[] = {
      engine_.transport->send(peer, head_tag(op), std::as_bytes(std::span(&call->own.header, 1))),
      engine_.transport->send(peer, body_tag(op), op.in.as_bytes())};
  if (engine_.trace) {
    works[0].on_settled([self, call](const auto&) { self->trace->agreed(call->times); });
  }
  Work::all(works).on_settled([self, this, call, peer](const std::exception_ptr& error) {
    if (went_well(*call, error)) end(call, peer);
  });
}

void Messages::receive(const std::shared_ptr<Call>& call, int peer) {
  const auto self = engine_.shared_from_this();
  const Work header =
      engine_.transport->recv(peer, head_tag(call->operation),
                              std::as_writable_bytes(std::span(&call->envelopes[0].header, 1)));
  header.on_settled([self, this, call, peer](const std::exception_ptr& error) {
    if (!went_well(*call, error)) return;
    if (engine_.trace) engine_.trace->agreed(call->times);
    if (const auto differs = mismatch(*call, peer)) {
      went_well(*call, differs);
      return;
    }
    const Operation& op = call->operation;
    if (op.on_device) {
      engine_.transfers.expect(peer, -1);
      return engine_.device->answer(call, peer, head_tag(op));
    }
    engine_.transport->recv(peer, body_tag(op), op.out.as_bytes())
        .on_settled([self, this, call, peer](const std::exception_ptr& failed) {
          if (went_well(*call, failed)) end(call, peer);
        });
  });
}

std::exception_ptr Messages::mismatch(const Call& call, int peer) const {
  const Header &own = call.own.header, &other = call.envelopes[0].header;
  if (same_call(own, other)) return nullptr;
  const GroupFacts& facts = engine_.facts;
  const auto text = "rank " + std::to_string(facts.world_rank(peer)) + " called " +
                    call_text(other, own) + ", rank " + std::to_string(facts.world_rank()) +
                    " receives " + call_text(own, other) + facts.text();
  return std::make_exception_ptr(
      MismatchError(text, {.rank = facts.world_rank(),
                           .operation = "recv",
                           .peer = facts.world_rank(peer),
                           .label = call.operation.label,
                           .advice = "Give send and receive the same count and type, and "
                                     "both CPU or both device memory."}));
}

void Messages::ended(const std::shared_ptr<Call>& call, int peer) {
  --open_;
  if (engine_.trace)
    engine_.trace->message_finished(call->operation, engine_.facts.world_rank(peer), call->times);
}

}  // namespace trireme::inline v0::comm
