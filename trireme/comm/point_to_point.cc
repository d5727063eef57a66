// send and recv between two ranks, which run outside the order of the collectives.
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/device_backend.h"
#include "trireme/comm/engine.h"

namespace trireme::inline v0::comm {
namespace {

constexpr std::uint64_t kUserTags = 3ull << 62;  // then the user's tag << 8, then header or data

std::span<const std::byte> bytes_of(const Header& header) {
  return std::as_bytes(std::span(&header, 1));
}
std::span<std::byte> bytes_of(Header& header) {
  return std::as_writable_bytes(std::span(&header, 1));
}

}  // namespace

// Header and data are sent together; the receiver checks the header before it receives the data.
void Engine::run_point_to_point(const std::shared_ptr<Call>& call) {
  Operation& op = call->operation;
  const net::Tag head{kUserTags | std::uint64_t(op.user_tag) << 8};
  const net::Tag body{head.value | 1};
  const int peer = op.root;
  const bool sends = op.kind == OpKind::Send;
  op.root = static_cast<int>(op.user_tag);
  call->own.header = header_of(op, options_.epoch);
  call->envelopes.resize(1);
  ++open_messages_;
  if (trace_) trace_->begun(call->times);
  if (op.on_device) return device_->run_message(call, peer, head);
  const auto end = [self = shared_from_this(), call, peer] {
    self->message_ended(call, peer);
    call->end();
  };
  const auto guard = [self = shared_from_this(), call](const std::exception_ptr& error) {
    if (error) self->fail(error);
    if (self->broken()) call->end(self->failure());
    return !self->broken();
  };
  if (sends) {
    const Work works[] = {transport_->send(peer, head, bytes_of(std::as_const(call->own.header))),
                          transport_->send(peer, body, op.in.as_bytes())};
    if (trace_) {
      works[0].on_settled([self = shared_from_this(), call](const std::exception_ptr&) {
        self->trace_->agreed(call->times);
      });
    }
    expect(peer, 1);
    Work::all(works).on_settled(
        [self = shared_from_this(), guard, end, peer](const std::exception_ptr& error) {
          if (!guard(error)) return;
          self->expect(peer, -1);
          end();
        });
    return;
  }
  expect(peer, 1);
  const Work header = transport_->recv(peer, head, bytes_of(call->envelopes[0].header));
  header.on_settled([self = shared_from_this(), call, guard, end, peer, body](const auto& error) {
    if (!guard(error)) return;
    if (self->trace_) self->trace_->agreed(call->times);
    if (const auto differs = self->message_mismatch(*call, peer)) {
      guard(differs);
      return;
    }
    self->transport_->recv(peer, body, call->operation.out.as_bytes())
        .on_settled([self, guard, end, peer](const std::exception_ptr& failed) {
          if (!guard(failed)) return;
          self->expect(peer, -1);
          end();
        });
  });
}

std::exception_ptr Engine::message_mismatch(const Call& call, int peer) const {
  const Header &own = call.own.header, &other = call.envelopes[0].header;
  if (same_call(own, other)) return nullptr;
  const auto text = "rank " + std::to_string(world_rank(peer)) + " called " +
                    call_text(other, own) + ", rank " + std::to_string(world_rank(rank_)) +
                    " receives " + call_text(own, other) + group_text();
  return std::make_exception_ptr(
      MismatchError(text, {.rank = world_rank(rank_),
                           .operation = "recv",
                           .peer = world_rank(peer),
                           .label = call.operation.label,
                           .advice = "Send and receive must name the same count and type, and "
                                     "both CPU or both device memory."}));
}

void Engine::message_ended(const std::shared_ptr<Call>& call, int peer) {
  --open_messages_;
  if (trace_) trace_->message_finished(call->operation, world_rank(peer), call->times);
}

}  // namespace trireme::inline v0::comm
