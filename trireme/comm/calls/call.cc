#include "trireme/comm/calls/call.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::inline v0::comm {
namespace {

constexpr std::uint64_t kTagSpace = 1ull << 63;  // tags of the engine's own messages

// As Board::error_of() (comm/shared/board.cc), but a header carries no reason.
std::exception_ptr gave_up(ExitCode code, ErrorContext context) {
  context.advice = "See that rank's own last lines.";
  const std::string message = "rank " + std::to_string(context.peer) + " gave up";
  return make_error(code, message, std::move(context));
}

}  // namespace

net::Tag tag_of(Purpose purpose) noexcept {
  return {kTagSpace | static_cast<std::uint64_t>(purpose)};
}

void Call::end(const std::exception_ptr& error) {
  ended = true;
  failure = error;
  if (source) source->settle(error);
}

bool Call::go_on() {
  if (!operation.next) return false;
  Operation next;
  next.label = operation.label;
  next.leaving = operation.leaving;
  next.sequence = operation.sequence;
  next.algorithm = operation.algorithm;
  next.part_of = operation.part_of;
  next.device = operation.device;
  next.staged = operation.staged;
  next.step = static_cast<std::uint8_t>(operation.step + 1);
  if (!operation.next(next)) return false;
  next.next = std::move(operation.next);
  operation = std::move(next);
  own = {};
  envelopes.clear();
  heard.clear();
  return true;
}

std::exception_ptr mismatch_of(const Call& call, int peer, const Header& other,
                               const GroupFacts& facts) {
  const Header& own = call.own.header;
  if (same_call(own, other)) return nullptr;
  const auto side = [&](int rank, const Header& header, const Header& against) {
    return "rank " + std::to_string(facts.world_rank(rank)) + " called " +
           call_text(header, against);
  };
  const std::string a = side(facts.rank, own, other), b = side(peer, other, own);
  ErrorContext context{.rank = facts.world_rank(),
                       .operation = std::string(name_of(call.operation.called())),
                       .peer = facts.world_rank(peer),
                       .label = call.operation.label};
  if (own.leaving || other.leaving) {
    const int gone = other.leaving ? peer : facts.rank;
    const std::uint8_t how = other.leaving ? other.leaving : own.leaving;
    context.peer = facts.world_rank(gone);
    if (how != Header::kEnded) return gave_up(static_cast<ExitCode>(how), std::move(context));
    context.advice =
        "Give every rank the same number of batches; "
        "trireme::Sampler does.";
    return std::make_exception_ptr(UnevenInput("rank " + std::to_string(facts.world_rank(gone)) +
                                                   "'s loop has ended, " + (gone == peer ? a : b) +
                                                   facts.text(),
                                               std::move(context)));
  }
  context.advice =
      "All ranks must call the same operations with the same arguments in the same "
      "order; look for a branch that only some ranks take.";
  return std::make_exception_ptr(MismatchError(
      (facts.rank < peer ? a + ", " + b : b + ", " + a) + facts.text(), std::move(context)));
}

const Operation* CallQueue::first_user_call() const noexcept {
  const auto call = std::find_if(calls_.begin(), calls_.end(), [](const auto& one) {
    return one->operation.kind != OpKind::Allocate;
  });
  return call == calls_.end() ? nullptr : &(*call)->operation;
}

void CallQueue::push(std::shared_ptr<Call> call) {
  Operation& op = call->operation;
  op.sequence = op.kind == OpKind::Allocate ? ++num_allocations_ : ++num_calls_;
  calls_.push_back(std::move(call));
}

std::shared_ptr<Call> CallQueue::start() {
  if (running_ || calls_.empty()) return nullptr;
  running_ = true;
  return calls_.front();
}

}  // namespace trireme::inline v0::comm
