// What happens when a wait has lasted too long, and the account of time waited.
#include <cstdio>

#include "trireme/base/error.h"
#include "trireme/comm/engine.h"

namespace trireme {
inline namespace v0 {
namespace comm {
namespace {

std::string seconds(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

}  // namespace

std::string Engine::running_title() const {
  std::lock_guard lock(mutex_);
  return title_;
}

bool Engine::owes(int peer) {
  if (peer == rank_) return false;
  if (waits_ == Waits::No) return expected_[peer] > 0;
  const Call& call = *queue_.front();
  if (waits_ == Waits::Headers) {
    return board_->slot(peer, call.number).ready.load(std::memory_order_acquire) != call.number;
  }
  return call.direct->owes(peer);
}

TimePoint Engine::on_deadline(TimePoint now, Duration waited) {
  PeerWatch::Verdict verdict;
  const std::string title = running_title();
  if (options_.watch) verdict = options_.watch->ask(title, waited);
  if (verdict.keep_waiting) {
    const std::string line = verdict.explanation + "; rank " + std::to_string(rank_) +
                             " waits in " + title + " since " + seconds(waited);
    options_.on_stall ? options_.on_stall(line) : void(std::fprintf(stderr, "%s\n", line.c_str()));
    return now + options_.timeout;
  }
  waiter_->run([self = shared_from_this(), waited, lost = verdict.lost_rank] {
    if (!self->broken()) self->fail(self->timeout_error(waited, lost));
  });
  return TimePoint::max();
}

std::exception_ptr Engine::timeout_error(Duration waited, int lost_rank) {
  ErrorContext context{.rank = rank_, .operation = running_title()};
  if (const Operation* op = first_user_call()) {
    context.operation = std::string(name_of(op->kind));
    context.label = op->label;
  }
  const auto host = [&](int peer) {
    const bool known = static_cast<std::size_t>(peer) < options_.host_of_rank.size();
    return known ? " on " + options_.host_of_rank[peer] : std::string();
  };
  if (lost_rank >= 0) {
    context.peer = lost_rank;
    context.advice = "See that rank's own last lines; resume from the last checkpoint.";
    return std::make_exception_ptr(PeerLost(
        "rank " + std::to_string(lost_rank) + host(lost_rank) + " is lost", std::move(context)));
  }
  std::string missing;
  for (int peer = 0; peer < size_; ++peer) {
    if (!owes(peer)) continue;
    if (context.peer < 0) context.peer = peer;
    missing += (missing.empty() ? "" : ", ") + std::to_string(peer) + host(peer);
  }
  context.advice =
      "Look for a rank that stopped or took another branch; raise `timeout` if it was "
      "only slow.";
  return std::make_exception_ptr(
      TimeoutError("waited " + seconds(waited) + " for " +
                       (missing.empty() ? "its own sends" : "rank " + missing),
                   std::move(context)));
}

void Engine::on_wait_begin(std::string_view description) noexcept {
  if (options_.watch) options_.watch->activity(description, true);
}

void Engine::on_wait_end(std::string_view description, Duration waited) noexcept {
  waited_.fetch_add(waited.count(), std::memory_order_relaxed);
  if (options_.watch) options_.watch->activity(description, false);
}

}  // namespace comm
}  // namespace v0
}  // namespace trireme
