// Messages between two ranks over NCCL. NCCL has no tags, so sender and receiver must agree on an
// order. Messages in opposite directions must not wait for each other, so each direction of a pair
// has its own lane (a communicator of two ranks and a stream), made with the first message.
//
//     sender    -> header -> receiver    over the transport, with the user's tag
//     receiver  -> answer -> sender      the message's number and the lane's NCCL id
//
// The receiver numbers messages in the order in which headers match its receives, and passes its
// receives to the lane in this order. The sender passes its sends to the lane by these numbers.
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/nccl/gpu_group.h"

namespace trireme::inline v0::comm {
namespace nccl {
namespace {

constexpr int kSender = 0, kReceiver = 1;  // ranks of a lane

net::Tag answer_tag(const net::Tag& message) { return {message.value | 2}; }

}  // namespace

struct GpuGroup::Answer {
  std::uint64_t number = 0;
  NcclId id{};
};

void GpuGroup::run_message(const std::shared_ptr<Call>& call, int peer, net::Tag tag) {
  call->operation.kind == OpKind::Send ? send_message(call, peer, tag)
                                       : receive_message(call, peer, tag);
}

// If the transfer failed, fails the call and returns false.
bool GpuGroup::went_well(const std::shared_ptr<Call>& call, const std::exception_ptr& error) {
  if (error && engine_) engine_->fail(error);
  if (engine_ && !engine_->failure.broken()) return true;
  call->end(engine_ ? engine_->failure.error() : error);
  return false;
}

void GpuGroup::send_message(const std::shared_ptr<Call>& call, int peer, net::Tag tag) {
  const auto answer = std::make_shared<Answer>();
  net::Transport& transport = *engine_->transport;
  engine_->transfers.expect(peer, 1);
  const Work works[] = {
      transport.send(peer, tag, std::as_bytes(std::span(&call->own.header, 1))),
      transport.recv(peer, answer_tag(tag), std::as_writable_bytes(std::span(answer.get(), 1)))};
  Work::all(works).on_settled([self = shared_from_this(), call, peer, answer](const auto& error) {
    if (!self->went_well(call, error)) return;
    self->engine_->transfers.expect(peer, -1);
    Pair& pair = self->pairs_[{peer, true}];
    pair.id = answer->id;
    pair.early[answer->number] = call;
    while (!pair.early.empty() && pair.early.begin()->first == pair.next) {
      ++pair.next;
      self->give_message(pair.early.extract(pair.early.begin()).mapped(), peer, pair, kSender);
    }
  });
}

void GpuGroup::receive_message(const std::shared_ptr<Call>& call, int peer, net::Tag tag) {
  engine_->transfers.expect(peer, 1);
  call->envelopes.resize(1);
  const auto bytes = std::as_writable_bytes(std::span(&call->envelopes[0].header, 1));
  engine_->transport->recv(peer, tag, bytes)
      .on_settled([self = shared_from_this(), call, peer, tag](const std::exception_ptr& error) {
        if (!self->went_well(call, error)) return;
        self->engine_->transfers.expect(peer, -1);
        const auto differs = self->engine_->messages.mismatch(*call, peer);
        if (!self->went_well(call, differs)) return;
        self->answer(call, peer, tag);
      });
}

void GpuGroup::answer(const std::shared_ptr<Call>& call, int peer, net::Tag tag) {
  Pair& pair = pairs_[{peer, false}];
  try {
    if (!pair.lane) pair.id = new_id();
  } catch (...) {
    went_well(call,
              about(static_cast<GpuCall*>(call->operation.device.get()), std::current_exception()));
    return;
  }
  const auto answer = std::make_shared<Answer>(Answer{pair.next++, pair.id});
  engine_->transport->send(peer, answer_tag(tag), std::as_bytes(std::span(answer.get(), 1)))
      .on_settled([self = shared_from_this(), answer](const std::exception_ptr& error) {
        if (error && self->engine_) self->engine_->fail(error);
      });
  if (engine_ && !engine_->failure.broken()) give_message(call, peer, pair, kReceiver);
}

void GpuGroup::give_message(const std::shared_ptr<Call>& call, int peer, Pair& pair, int own) {
  const std::shared_ptr<GpuCall> mine = hold(call);
  mine->make_steps = [call, own](std::byte*) {
    std::vector<GpuStep> steps(1);
    const NcclCall message = message_of(call->operation, own == kSender ? kReceiver : kSender);
    message.count > 0 ? steps[0].calls.push_back(message) : steps.clear();
    return steps;
  };
  mine->on_enqueued = [] {};
  mine->on_end = [self = shared_from_this(), call, peer](const std::exception_ptr& error) {
    self->let_go(call);
    if (self->engine_ && !error) self->engine_->messages.ended(call, peer);
    call->end(error);
  };
  try {
    if (!pair.lane) {
      pair.lane = lanes_.emplace_back(std::make_shared<Lane>(gpu_));
      pair.lane->start(pair.id, 2, own);
    }
    pair.lane->push(mine);
  } catch (...) {
    const auto error = about(mine.get(), std::current_exception());
    mine->end(error);
    return fail(error);
  }
  watch();
}

}  // namespace nccl
}  // namespace trireme::inline v0::comm
