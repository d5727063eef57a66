#include "trireme/comm/nccl/gpu_messages.h"

#include "trireme/base/error.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/nccl/gpu_group.h"

namespace trireme::inline v0::comm::nccl {
namespace {

constexpr int kSender = 0, kReceiver = 1;  // ranks of a lane

net::Tag answer_tag(const net::Tag& message) { return {message.value | 2}; }

}  // namespace

struct GpuMessages::Answer {
  std::uint64_t number = 0;
  NcclId id{};
};

void GpuMessages::abort(const std::exception_ptr& error) noexcept {
  for (const auto& [key, pair] : std::exchange(pairs_, {})) {
    for (const auto& [number, call] : pair.early) call->end(error);
  }
}

// If the transfer failed or the group is broken, fails the call and returns false.
bool GpuMessages::went_well(const std::shared_ptr<Call>& call, const std::exception_ptr& error) {
  if (error && group_.engine_) group_.engine_->fail(error, &call->operation);
  if (group_.engine_ && !group_.engine_->failure.broken()) return true;
  call->end(group_.engine_ ? group_.engine_->failure.error() : error);
  return false;
}

void GpuMessages::send(const std::shared_ptr<Call>& call, int peer, net::Tag tag) {
  const auto answer = std::make_shared<Answer>();
  net::Transport& transport = *group_.engine_->transport;
  const Work works[] = {
      transport.send(peer, tag, std::as_bytes(std::span(&call->own.header, 1))),
      transport.recv(peer, answer_tag(tag), std::as_writable_bytes(std::span(answer.get(), 1)))};
  Work::all(works).on_settled(
      [this, self = group_.shared_from_this(), call, peer, answer](const auto& error) {
        if (!went_well(call, error)) return;
        group_.engine_->transfers.expect(peer, -1);
        Pair& pair = pairs_[{peer, true}];
        pair.id = answer->id;
        pair.early[answer->number] = call;
        // If give() fails, it aborts the group, which destroys the pair.
        while (!group_.error_ && !pair.early.empty() && pair.early.begin()->first == pair.next) {
          ++pair.next;
          give(pair.early.extract(pair.early.begin()).mapped(), peer, pair, kSender);
        }
      });
}

void GpuMessages::answer(const std::shared_ptr<Call>& call, int peer, net::Tag tag) {
  Pair& pair = pairs_[{peer, false}];
  try {
    if (!pair.lane) pair.id = Lane::new_id(*group_.gpu_);
  } catch (...) {
    went_well(call, group_.about(static_cast<GpuCall*>(call->operation.device.get()),
                                 std::current_exception()));
    return;
  }
  const auto answer = std::make_shared<Answer>(Answer{pair.next++, pair.id});
  group_.engine_->transport->send(peer, answer_tag(tag), std::as_bytes(std::span(answer.get(), 1)))
      .on_settled(
          [this, self = group_.shared_from_this(), answer, call](const std::exception_ptr& error) {
            if (error && group_.engine_) group_.engine_->fail(error, &call->operation);
          });
  if (went_well(call, group_.error_)) give(call, peer, pair, kReceiver);
}

void GpuMessages::give(const std::shared_ptr<Call>& call, int peer, Pair& pair, int own) {
  const std::shared_ptr<GpuCall> mine = group_.held_.add(call);
  mine->peer = peer;
  mine->make_steps = [call, own](std::byte*) {
    std::vector<GpuStep> steps(1);
    const NcclCall message = message_of(call->operation, own == kSender ? kReceiver : kSender);
    message.count > 0 ? steps[0].calls.push_back(message) : steps.clear();
    return steps;
  };
  mine->on_enqueued = [] {};
  mine->on_end = [this, self = group_.shared_from_this(), call,
                  peer](const std::exception_ptr& error) {
    group_.held_.remove(call);
    if (group_.engine_ && !error) group_.engine_->messages.ended(call, peer);
    call->end(error);
  };
  try {
    if (!pair.lane) {
      pair.lane = group_.lanes_.emplace_back(std::make_shared<Lane>(group_.gpu_));
      pair.lane->start(pair.id, 2, own);
    }
    pair.lane->push(mine);
  } catch (...) {
    const auto error = group_.about(mine.get(), std::current_exception());
    mine->end(error);
    return group_.fail(error);
  }
  group_.watch_.begin(group_.shared_from_this());
}

}  // namespace trireme::inline v0::comm::nccl
