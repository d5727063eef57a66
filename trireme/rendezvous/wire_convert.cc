#include "trireme/rendezvous/wire_convert.h"

#include <algorithm>

namespace trireme::inline v0::rendezvous {
namespace {

// Clamped, because larger values would overflow.
Duration passed(std::int64_t count) {
  constexpr std::int64_t kTenYears = 315'360'000'000;
  return std::chrono::milliseconds(std::clamp<std::int64_t>(count, 0, kTenYears));
}

}  // namespace

void fill(const Activity& activity, wire::Activity& message) {
  message.set_waiting(activity.waiting);
  message.set_operation(activity.operation);
  message.set_last_call(activity.last_call);
  message.set_since_ms(milliseconds(activity.since));
  message.set_step(activity.step);
  if (activity.moved) message.set_moved_ms(milliseconds(*activity.moved));
}

Activity activity_from(const wire::Activity& message) {
  Activity activity{message.waiting(), message.operation(), message.last_call(),
                    passed(message.since_ms()), static_cast<long>(message.step())};
  if (message.has_moved_ms()) activity.moved = passed(message.moved_ms());
  return activity;
}

void fill(const Failure& failure, wire::Failure& message) {
  message.set_rank(failure.rank);
  message.set_host(failure.host);
  message.set_step(failure.step);
  message.set_operation(failure.operation);
  message.set_sentence(failure.sentence);
  message.set_exit_code(failure.exit_code);
}

Failure failure_from(const wire::Failure& message) {
  return {message.rank(),      message.host(),     static_cast<long>(message.step()),
          message.operation(), message.sentence(), message.exit_code()};
}

void fill(const Table& table, wire::HeartbeatReply& message) {
  for (const PeerState& peer : table.peers) {
    wire::PeerState& row = *message.add_peers();
    row.set_rank(static_cast<std::uint32_t>(peer.rank));
    row.set_host(peer.host);
    row.set_phase(static_cast<std::uint32_t>(peer.phase));
    row.set_stopped(peer.stopped);
    row.set_silent_ms(milliseconds(peer.silent));
    row.set_stopped_ms(milliseconds(peer.stopped_for));
    fill(peer.activity, *row.mutable_activity());
  }
  message.set_quiet_ms(milliseconds(table.quiet));
}

Table table_from(const wire::HeartbeatReply& message) {
  Table table;
  for (const wire::PeerState& row : message.peers()) {
    table.peers.push_back({.rank = static_cast<int>(row.rank()),
                           .host = row.host(),
                           .phase = static_cast<Phase>(std::min(row.phase(), 3u)),
                           .stopped = row.stopped(),
                           .activity = activity_from(row.activity()),
                           .silent = passed(row.silent_ms()),
                           .stopped_for = passed(row.stopped_ms())});
  }
  table.quiet = passed(message.quiet_ms());
  return table;
}

void fill(const Epoch& epoch, wire::Epoch& message) {
  message.set_number(epoch.number);
  for (const int process : epoch.members) message.add_members(static_cast<std::uint32_t>(process));
  message.set_at_step_end(epoch.at_step_end);
  message.set_cause(epoch.cause);
  message.set_interrupted(epoch.interrupted);
}

Epoch epoch_from(const wire::Epoch& message) {
  return {.number = message.number(),
          .members = {message.members().begin(), message.members().end()},
          .at_step_end = message.at_step_end(),
          .interrupted = message.interrupted(),
          .cause = message.cause()};
}

std::optional<News> news_from(const wire::News& message) {
  using Kind = News::Kind;
  switch (message.what_case()) {
    case wire::News::kFailure:
      return News{.kind = Kind::Failure, .failure = failure_from(message.failure())};
    case wire::News::kStopSignal:
      return News{.kind = Kind::Stop, .stop_signal = message.stop_signal()};
    case wire::News::kLeftRank:
      return News{.kind = Kind::Left, .left_rank = static_cast<int>(message.left_rank())};
    case wire::News::kServerView:
      return News{.kind = Kind::Servers, .servers = ServerView::from_text(message.server_view())};
    case wire::News::kEpoch:
      return News{.kind = Kind::Epoch, .epoch = epoch_from(message.epoch())};
    case wire::News::kStoreAway:
      return News{.kind = message.store_away() ? Kind::CoordinatorAway : Kind::CoordinatorBack,
                  .reason = "cannot reach its store"};
    case wire::News::kFinished:
      return News{.kind = Kind::Finished};
    case wire::News::kWatching:
    case wire::News::WHAT_NOT_SET:
      break;
  }
  return std::nullopt;
}

}  // namespace trireme::inline v0::rendezvous
