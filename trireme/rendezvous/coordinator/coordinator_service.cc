#include "trireme/rendezvous/coordinator/coordinator_service.h"

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/observe/log.h"

namespace trireme::inline v0::rendezvous {
namespace {

using Context = grpc::CallbackServerContext;
using Unary = grpc::ServerUnaryReactor;
using grpc::Status;
using grpc::StatusCode;

constexpr std::size_t kLongestKey = 256;
// The job's state holds the exchanges of its epoch, and etcd takes 1.5 MiB.
constexpr std::size_t kLongestExchange = 1 << 19;

}  // namespace

grpc::Status Service::check_join(const wire::JoinRequest& request) const {
  const bool known = request.rank() < static_cast<std::size_t>(state_.members.size());
  const std::string who = known ? state_.roles().name_of(static_cast<int>(request.rank()))
                                : "process " + std::to_string(request.rank());
  if (request.version() != state_.options.version) {
    return Status(StatusCode::FAILED_PRECONDITION, who + " is \"" + request.version() +
                                                       "\", its coordinator \"" +
                                                       state_.options.version + "\"");
  }
  if (request.job() != state_.options.job || !known) {
    return Status(StatusCode::FAILED_PRECONDITION,
                  who + " of job " + request.job() + " does not belong to job " +
                      state_.options.job + ", of " + std::to_string(state_.members.size()) +
                      " processes");
  }
  return Status::OK;
}

Unary* Service::Join(Context* context, const wire::JoinRequest* request, wire::JoinReply* reply) {
  return serve(context, [=, this] { return join(*request, *reply); });
}

Status Service::join(const wire::JoinRequest& request, wire::JoinReply& reply) {
  std::lock_guard lock(mutex_);
  Status status = check_join(request);
  reply.set_returns_within_ms(milliseconds(state_.options.returns_within));
  if (request.asks()) {
    reply.set_has_workers(state_.streams.any(
        [this](int process) { return state_.roles().role_of(process) == Role::Worker; }));
    reply.set_has_begun(state_.epoch().number > 0);
    return status;
  }
  const int rank = static_cast<int>(request.rank());  // any number, until check_join() has passed
  const auto welcome = [&] {
    reply.set_token(state_.sessions.token(rank));
    reply.set_heartbeat_ms(milliseconds(state_.options.heartbeat));
    return state_.save() ? Status::OK : store_lost();
  };
  const bool repeated = status.ok() && state_.members.phase(rank) == Phase::Joined &&
                        request.token() == state_.sessions.token(rank);
  if (repeated) return welcome();  // the first answer was lost
  if (status.ok() && is_out_of_reach(rank)) {
    state_.options.on_gone(rank, state_.roles().name_of(rank) + " was started again");
    return {StatusCode::ALREADY_EXISTS,
            "the earlier process in its place is not taken for lost yet"};
  }
  // The process has joined an earlier coordinator, but not got its answer.
  if (status.ok() && state_.options.store && !state_.options.on_gone &&
      state_.members.phase(rank) == Phase::Joined && !state_.streams.reaches(rank))
    state_.vacate(rank);
  if (status.ok()) {
    const auto refusal =
        state_.members.join(rank, request.host(), request.identity(), steady_now());
    if (refusal) status = Status(StatusCode::FAILED_PRECONDITION, *refusal);
  }
  if (!status.ok()) {
    // Recorded, so that all ranks print the reason.
    const bool known =
        request.rank() < static_cast<std::size_t>(state_.members.size()) && state_.matters(rank);
    // A second process in a place whose first one may not be needed.
    const bool second = known && (state_.elastic() || state_.servers.trains_alone(rank)) &&
                        state_.members.phase(rank) != Phase::Absent;
    if (known && !second) {
      state_.record({rank, request.host(), -1, "join",
                     state_.roles().name_of(rank) + " on host " + request.host() +
                         " was refused: " + status.error_message() +
                         ". Start every rank from the same build, with the same configuration.",
                     static_cast<int>(ExitCode::Refused)});
    }
    return status;
  }
  state_.sessions.begin(rank, request.token());
  return welcome();
}

// True if it has not come back to a returned coordinator, or is silent. It may have a successor.
bool Service::is_out_of_reach(int process) {
  if (!state_.elastic() || !state_.options.on_gone ||
      state_.members.phase(process) != Phase::Joined)
    return false;
  const Duration silence = kSilentHeartbeats * state_.options.heartbeat;
  return !state_.streams.reaches(process) ||
         (silence > Duration::zero() &&
          !state_.members.awaits(process, process + 1, silence, steady_now()));
}

Unary* Service::Exchange(Context* context, const wire::ExchangeRequest* request,
                         wire::ExchangeReply* reply) {
  Unary* reactor = context->DefaultReactor();
  worker_.post([=, this] { exchange(*request, reactor, reply); });
  return reactor;
}

void Service::exchange(const wire::ExchangeRequest& request, Unary* reactor,
                       wire::ExchangeReply* reply) {
  std::lock_guard lock(mutex_);
  const auto refuse = [&](StatusCode code, const std::string& why) {
    reactor->Finish({code, why});
  };
  const int rank = state_.sessions.process_of(request.session());
  if (rank < 0) return reactor->Finish(no_session());
  if (request.key().size() > kLongestKey)
    return refuse(StatusCode::INVALID_ARGUMENT, "the key is too long");
  if (request.value().size() > kLongestExchange)
    return refuse(StatusCode::INVALID_ARGUMENT,
                  "the value of \"" + request.key() + "\" has " + grouped(request.value().size()) +
                      " bytes, and " + grouped(kLongestExchange) + " are the most");
  const std::optional<Group> group = Exchanges::group_of(request, state_.members.size());
  if (!group) return refuse(StatusCode::INVALID_ARGUMENT, "there is no such group of processes");
  if (!is_in(*group, rank))
    return refuse(StatusCode::INVALID_ARGUMENT, "the caller is not in the group");
  if (request.members_size() > 0 && request.epoch() != state_.epoch().number)
    return refuse(StatusCode::ABORTED, "the ranks have changed: " + state_.epoch().cause);
  state_.exchanges.give(rank, *group, request, {reactor, reply}, [this] { return state_.save(); });
  if (evaluator_has_ended())
    state_.exchanges.fail_awaiting(state_.roles().first(Role::Evaluator),
                                   "the evaluator has ended");
}

bool Service::evaluator_has_ended() const {
  if (!state_.roles().evaluator) return false;
  const Phase phase = state_.members.phase(state_.roles().first(Role::Evaluator));
  return phase == Phase::Left || phase == Phase::Ended;
}

Unary* Service::Heartbeat(Context* context, const wire::HeartbeatRequest* request,
                          wire::HeartbeatReply* reply) {
  return serve(context, [=, this] {
    std::lock_guard lock(mutex_);
    const int rank = state_.sessions.process_of(request->session());
    if (rank < 0) return no_session();
    const TimePoint now = steady_now();
    state_.members.beat(rank, activity_from(request->activity()), now);
    if (!request->only_tells()) fill(state_.members.table(now), *reply);
    return Status::OK;
  });
}

grpc::ServerWriteReactor<wire::News>* Service::Watch(Context*, const wire::WatchRequest* request) {
  auto* watcher = new Watcher(worker_, mutex_);  // deletes itself
  worker_.post([=, this, asked = *request] {
    const std::optional<int> joined = begin_watch(watcher, asked);
    if (joined && state_.options.on_joined) state_.options.on_joined(*joined);
  });
  return watcher;
}

std::optional<int> Service::begin_watch(Watcher* watcher, const wire::WatchRequest& request) {
  std::lock_guard lock(mutex_);
  const int rank = state_.sessions.process_of(request.session());
  const std::uint32_t stream = request.stream();
  state_.streams.open(watcher, rank, stream, [=, this] { on_stream_end(rank, stream); });
  if (rank < 0) {
    watcher->finish(no_session());
    return std::nullopt;
  }
  state_.tell_present(*watcher);
  return state_.elastic() ? std::optional(rank) : std::nullopt;
}

Unary* Service::StopWatching(Context* context, const wire::WatchRequest* request, wire::Empty*) {
  return serve(context, [=, this] {
    std::lock_guard lock(mutex_);
    const int rank = state_.sessions.process_of(request->session());
    if (rank < 0) return no_session();
    state_.streams.stop(rank, request->stream());
    return Status::OK;
  });
}

// The end of a process closes its connections, on any host.
void Service::on_stream_end(int rank, std::uint32_t stream) {
  if (!state_.options.lost_with_stream || !state_.streams.take_end(rank, stream)) return;
  if (state_.members.phase(rank) != Phase::Joined) return;
  const std::string who = state_.roles().name_of(rank) + " on host " + state_.members.host(rank);
  if (state_.elastic()) {
    if (state_.options.on_gone) state_.options.on_gone(rank, who + " is gone");
    return;
  }
  const Roles& roles = state_.roles();
  if (roles.role_of(rank) == Role::Server && state_.lose_server(roles.number_of(rank))) return;
  if (roles.role_of(rank) == Role::Worker && state_.lose_worker_for_good(rank))
    return observe::warning(who + " is gone; the others go on without it");
  state_.members.end(rank);
  if (roles.role_of(rank) == Role::Evaluator) return state_.gone(rank, who + " is gone");
  const bool news =
      state_.members.fail({.rank = rank,
                           .host = state_.members.host(rank),
                           .sentence = who + " is gone: its process ended without a word. See "
                                             "what its launcher says of it",
                           .exit_code = static_cast<int>(ExitCode::PeerLost)});
  if (news) state_.announce();
  state_.gone(rank, who + " is gone");
}

Unary* Service::ReportFailure(Context* context, const wire::FailureReport* request, wire::Empty*) {
  return serve(context, [=, this] {
    Failure failure = failure_from(request->failure());
    {
      std::lock_guard lock(mutex_);
      const int rank = state_.sessions.process_of(request->session());
      if (rank < 0) return no_session();
      // The launcher prints such a failure when the process has ended.
      if (state_.roles().role_of(rank) == Role::Evaluator ||
          (failure.secondary() && state_.can_lose(rank)) || !state_.matters(rank))
        return Status();
      failure.rank = rank;
      state_.record(failure);
    }
    if (state_.options.on_failure) state_.options.on_failure(failure);
    return Status();
  });
}

Unary* Service::Leave(Context* context, const wire::LeaveRequest* request, wire::Empty*) {
  return serve(context, [=, this] {
    int rank = -1;
    {
      std::lock_guard lock(mutex_);
      rank = state_.sessions.process_of(request->session());
      if (rank < 0) return no_session();
      // Its loss came first: the place is free for another process.
      if (state_.members.phase(rank) == Phase::Absent) return Status();
      state_.members.leave(rank, request->exit_code());
      state_.gone(rank, state_.roles().name_of(rank) + " has left the job");
      // The effects are decided later, perhaps by the next coordinator, which counts a process that
      // has left by an exception as lost anyway.
      const bool matters = state_.elastic() && request->exit_code() != 1;
      if (matters && !state_.save()) return store_lost();
    }
    if (state_.options.on_left) state_.options.on_left(rank, request->exit_code());
    return Status();
  });
}

Unary* Service::TellOfServers(Context* context, const wire::ServerNews* request,
                              wire::ServerViewReply* reply) {
  return serve(context, [=, this] { return tell_of_servers(*request, *reply); });
}

Status Service::tell_of_servers(const wire::ServerNews& request, wire::ServerViewReply& reply) {
  ServerReports::Effect effect;
  {
    std::lock_guard lock(mutex_);
    const Roles& roles = state_.roles();
    const int process = state_.sessions.process_of(request.session());
    if (process < 0 || !ServerReports::may_tell(roles.role_of(process), request.what_case()))
      return {StatusCode::UNAUTHENTICATED, "the caller may not say that"};
    effect = state_.servers.take(roles, process, request);
    if (effect.incarnation) reply.set_incarnation(*effect.incarnation);
    if (effect.other) reply.set_other(static_cast<std::uint32_t>(*effect.other));
    if (effect.changed && !state_.save()) return store_lost();
    if (effect.view_changed) state_.tell_server_view();
    // A stop that has been asked for already reached the servers, too.
    if (request.what_case() == wire::ServerNews::kStopSignal && state_.end().stop_signal == 0)
      state_.stop(request.stop_signal());
    reply.set_view(state_.servers.view().to_text());
  }
  const CoordinatorOptions& options = state_.options;
  if (effect.dead && options.on_server_lost) options.on_server_lost(*effect.dead);
  if (request.what_case() == wire::ServerNews::kCopy && effect.view_changed && options.on_new_copy)
    options.on_new_copy(static_cast<int>(request.copy().shard()),
                        static_cast<int>(request.copy().at().server()));
  return Status::OK;
}

}  // namespace trireme::inline v0::rendezvous
