// Engine's handling of waits that time out, and its count of the time spent waiting.
#include <cstdio>

#include "trireme/base/error.h"
#include "trireme/comm/device_backend.h"
#include "trireme/comm/engine.h"

namespace trireme::inline v0::comm {
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
    return board().slot(peer, call.number).ready.load(std::memory_order_acquire) != call.number;
  }
  return call.run->polled()->owes(peer);
}

// The timeout counts from the last byte that this group's transport moved. A shorter deadline given
// with the call is not extended.
TimePoint Engine::on_deadline(TimePoint now, Duration waited, const std::string& title) {
  const TimePoint moved = net::last_moved(*transport_);
  if (waited >= options_.timeout && moved > now - options_.timeout) return moved + options_.timeout;
  PeerWatch::Verdict verdict;
  if (options_.watch) verdict = options_.watch->ask(title, waited);
  if (verdict.keep_waiting) {
    const std::string line = verdict.explanation + "; rank " + std::to_string(world_rank(rank_)) +
                             " waits in " + title + group_text() + " since " + seconds(waited);
    options_.on_stall ? options_.on_stall(line) : void(std::fprintf(stderr, "%s\n", line.c_str()));
    return now + options_.timeout;
  }
  waiter_->run([self = shared_from_this(), waited, verdict, title] {
    if (!self->broken()) self->fail(self->timeout_error(waited, verdict, title));
  });
  return TimePoint::max();
}

// Names the ranks that are missing and, if the PeerWatch knows, what they do instead.
std::exception_ptr Engine::timeout_error(Duration waited, const PeerWatch::Verdict& verdict,
                                         const std::string& title) {
  const int lost_rank = verdict.lost_rank;
  ErrorContext context{.rank = world_rank(rank_), .operation = title};
  if (const Operation* op = first_user_call(); op && title == title_of(*op)) {
    context.operation = std::string(name_of(op->called()));
    context.label = op->label;
  }
  const auto text = [&](int peer) {
    const bool known = static_cast<std::size_t>(peer) < options_.host_of_rank.size();
    return std::to_string(world_rank(peer)) +
           (known ? " on " + options_.host_of_rank[peer] : std::string());
  };
  if (lost_rank >= 0) {
    context.peer = lost_rank;
    context.advice = "See that rank's own last lines; resume from the last checkpoint.";
    return std::make_exception_ptr(
        PeerLost("rank " + (head_ ? text(lost_rank) : std::to_string(lost_rank)) + " is lost",
                 std::move(context)));
  }
  std::string missing;
  for (int peer = 0; peer < size_; ++peer) {
    if (!owes(peer)) continue;
    if (context.peer < 0) context.peer = world_rank(peer);
    missing += (missing.empty() ? "" : ", ") + text(peer);
  }
  if (missing.empty() && device_ && device_->busy())
    return device_->timeout(waited, context.operation, context.label);
  context.advice =
      "Look for a rank that stopped or took another branch; raise `timeout` if it was "
      "only slow.";
  return std::make_exception_ptr(
      TimeoutError("waited " + seconds(waited) + " for " +
                       (missing.empty() ? "its own sends" : "rank " + missing) + group_text() +
                       (verdict.explanation.empty() ? "" : "; " + verdict.explanation),
                   std::move(context)));
}

void Engine::on_wait_begin(std::string_view description) noexcept {
  user_waits_.fetch_add(1, std::memory_order_relaxed);
  if (options_.watch) options_.watch->activity(description, true);
}

void Engine::on_wait_end(std::string_view description, Duration waited) noexcept {
  waited_.fetch_add(waited.count(), std::memory_order_relaxed);
  user_waits_.fetch_sub(1, std::memory_order_relaxed);
  if (options_.watch) options_.watch->activity(description, false);
}

}  // namespace trireme::inline v0::comm
