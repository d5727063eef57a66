#include "trireme/comm/calls/call_waits.h"

#include <cstdio>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/device/device_backend.h"
#include "trireme/comm/engine.h"

namespace trireme::inline v0::comm {

std::string seconds_text(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", to_seconds(duration));
  return text;
}

CallNames names_of(const Operation& operation) {
  return {std::string(name_of(operation.called())), operation.label,
          operation.is_message() ? operation.root : -1};
}

void CallWaits::set_running(CallNames call) {
  std::lock_guard lock(mutex_);
  running_ = std::move(call);
}

Deadline CallWaits::timeout() const noexcept { return Deadline::in(engine_.facts.options.timeout); }

void CallWaits::on_unseen_failure(std::exception_ptr error) noexcept {
  engine_.abort(std::move(error));
}

TimePoint CallWaits::on_deadline(TimePoint now, Duration waited) {
  CallNames call;
  {
    std::lock_guard lock(mutex_);
    call = running_;
  }
  return on_deadline_of(call, now, waited);
}

// The timeout counts from the last byte that this group's transport moved. A shorter deadline given
// with the call is not extended.
TimePoint CallWaits::on_deadline_of(const CallNames& call, TimePoint now, Duration waited) {
  const CommunicatorOptions& options = engine_.facts.options;
  const TimePoint moved = net::last_moved(*engine_.transport);
  if (waited >= options.timeout && moved > now - options.timeout) return moved + options.timeout;
  const std::string title = call.operation + (call.label.empty() ? "" : " ") + call.label;
  PeerWatch::Verdict verdict;
  if (options.watch) verdict = options.watch->ask(title, waited);
  if (verdict.keep_waiting && waited >= options.timeout) {
    const std::string line = verdict.explanation + "; rank " +
                             std::to_string(engine_.facts.world_rank()) + " waits in " + title +
                             engine_.facts.text() + " since " + seconds_text(waited);
    options.on_stall ? options.on_stall(line) : void(std::fprintf(stderr, "%s\n", line.c_str()));
    return now + options.timeout;
  }
  engine_.waiter->run([self = engine_.shared_from_this(), this, waited, verdict, call] {
    if (self->failure.broken()) return;
    const auto error = timeout_error(waited, verdict, call);
    call.peer >= 0 ? self->break_with(error) : self->fail(error);
  });
  return TimePoint::max();
}

bool CallWaits::owes(int peer, const CallNames& call) const {
  if (peer == engine_.facts.rank) return false;
  if (call.peer >= 0) return peer == call.peer && engine_.transfers.with(peer);
  return engine_.board_watch ? engine_.board_watch->owes(peer) : engine_.transfers.with(peer);
}

// Names the ranks that are missing and, if the PeerWatch knows, what they do instead.
std::exception_ptr CallWaits::timeout_error(Duration waited, const PeerWatch::Verdict& verdict,
                                            const CallNames& call) const {
  const GroupFacts& facts = engine_.facts;
  const int lost_rank = verdict.lost_rank;
  ErrorContext context{
      .rank = facts.world_rank(), .operation = call.operation, .label = call.label};
  const auto text = [&](int peer) {
    const auto& names = facts.options.host_of_rank;
    const bool known = static_cast<std::size_t>(peer) < names.size();
    return std::to_string(facts.world_rank(peer)) + (known ? " on " + names[peer] : std::string());
  };
  if (lost_rank >= 0) {
    context.peer = lost_rank;
    context.advice = "See that rank's own last lines; resume from the last checkpoint.";
    return std::make_exception_ptr(
        PeerLost("rank " + (facts.head ? text(lost_rank) : std::to_string(lost_rank)) + " is lost",
                 std::move(context)));
  }
  std::string missing;
  for (int peer = 0; peer < facts.size; ++peer) {
    if (!owes(peer, call)) continue;
    if (context.peer < 0) context.peer = facts.world_rank(peer);
    missing += (missing.empty() ? "" : ", ") + text(peer);
  }
  if (missing.empty() && engine_.device && engine_.device->busy())
    return engine_.device->timeout(waited, context.operation, context.label);
  const bool on_device = missing.empty() && engine_.staged->busy();
  context.advice =
      "Look for a rank that stopped or took another branch; raise `timeout` if it was "
      "only slow.";
  return std::make_exception_ptr(TimeoutError(
      "waited " + seconds_text(waited) + " for " +
          (on_device         ? "its device to copy"
           : missing.empty() ? "a peer to take what this rank sent"
                             : "rank " + missing) +
          facts.text() + (verdict.explanation.empty() ? "" : "; " + verdict.explanation),
      std::move(context)));
}

void CallWaits::on_wait_begin(std::string_view description) noexcept {
  blocked_.fetch_add(1, std::memory_order_relaxed);
  if (const auto& watch = engine_.facts.options.watch) watch->activity(description, true);
}

void CallWaits::on_wait_end(std::string_view description, Duration waited) noexcept {
  time_.fetch_add(waited.count(), std::memory_order_relaxed);
  blocked_.fetch_sub(1, std::memory_order_relaxed);
  if (const auto& watch = engine_.facts.options.watch) watch->activity(description, false);
}

}  // namespace trireme::inline v0::comm
