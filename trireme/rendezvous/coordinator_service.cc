#include "trireme/rendezvous/coordinator_service.h"

#include <numeric>

#include "trireme/base/error.h"

namespace trireme::inline v0::rendezvous {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using grpc::Status;
using grpc::StatusCode;

constexpr std::size_t kLongestExchange = 1 << 16;

const Status kStoreLost(StatusCode::UNAVAILABLE, "the coordinator has lost its store");
const Status kNoSession(StatusCode::UNAUTHENTICATED, "the call carries no valid session");

}  // namespace

int Service::rank_of(const wire::Session& session) const {
  const std::size_t rank = session.rank();
  if (rank >= tokens_.size() || tokens_[rank].empty()) return -1;
  return same_proof(tokens_[rank], session.token()) ? static_cast<int>(rank) : -1;
}

grpc::Status Service::check_join(const wire::JoinRequest& request) const {
  const std::string who = members_.roles().name_of(static_cast<int>(request.rank()));
  if (request.version() != options_.version) {
    return Status(
        StatusCode::FAILED_PRECONDITION,
        who + " is \"" + request.version() + "\", its coordinator \"" + options_.version + "\"");
  }
  if (request.job() != options_.job || request.epoch() != options_.epoch ||
      request.rank() >= tokens_.size()) {
    return Status(StatusCode::FAILED_PRECONDITION,
                  who + " of job " + request.job() + ", epoch " + std::to_string(request.epoch()) +
                      ", does not belong to job " + options_.job + ", epoch " +
                      std::to_string(options_.epoch) + ", of " + std::to_string(tokens_.size()) +
                      " processes");
  }
  return Status::OK;
}

ServerUnaryReactor* Service::Join(CallbackServerContext* context, const wire::JoinRequest* request,
                                  wire::JoinReply* reply) {
  return serve(context, [=, this] { return join(*request, *reply); });
}

Status Service::join(const wire::JoinRequest& request, wire::JoinReply& reply) {
  std::lock_guard lock(mutex_);
  Status status = check_join(request);
  const auto rank = request.rank();
  if (status.ok() && is_out_of_reach(static_cast<int>(rank))) {
    options_.on_gone(static_cast<int>(rank),
                     members_.roles().name_of(static_cast<int>(rank)) + " was started again");
    return {StatusCode::ALREADY_EXISTS, "it is taken for lost first"};
  }
  // It had no answer from the coordinator before this one.
  if (status.ok() && options_.store && !options_.on_gone &&
      members_.phase(static_cast<int>(rank)) == Phase::Joined && !reaches(static_cast<int>(rank)))
    members_.forget(static_cast<int>(rank));
  if (status.ok()) {
    const auto refusal =
        members_.join(static_cast<int>(rank), request.host(), request.identity(), steady_now());
    if (refusal) status = Status(StatusCode::FAILED_PRECONDITION, *refusal);
  }
  if (!status.ok()) {
    // Record it, so that all ranks print the reason.
    const bool known = rank < tokens_.size() && matters(static_cast<int>(rank));
    const bool second =
        known && elastic() && members_.phase(static_cast<int>(rank)) != Phase::Absent;
    if (known && !second) {
      record({static_cast<int>(rank), request.host(), -1, "join",
              members_.roles().name_of(static_cast<int>(rank)) + " on host " + request.host() +
                  " was refused: " + status.error_message() +
                  ". Start every rank from the same build, with the same configuration.",
              static_cast<int>(ExitCode::Refused)});
    }
    return status;
  }
  tokens_[rank] = random_bytes(kSecretBytes);
  reply.set_token(tokens_[rank]);
  reply.set_returns_within_ms(milliseconds(options_.returns_within));
  reply.set_heartbeat_ms(milliseconds(options_.heartbeat));
  return save() ? Status::OK : kStoreLost;
}

// One that has not come back since a coordinator returned, or is silent; its place may have a new process
// already.
bool Service::is_out_of_reach(int process) {
  if (!elastic() || !options_.on_gone || members_.phase(process) != Phase::Joined) return false;
  const Duration silence = kSilentHeartbeats * options_.heartbeat;
  return !reaches(process) || (silence > Duration::zero() &&
                               !members_.awaits(process, process + 1, silence, steady_now()));
}

std::optional<Group> Service::group_of(const wire::ExchangeRequest& request) const {
  Group group;
  if (request.members_size() > 0) {
    group.members.assign(request.members().begin(), request.members().end());
    const bool ascends = std::is_sorted(group.members.begin(), group.members.end());
    if (!ascends || group.members.front() < 0 || group.members.back() >= members_.size())
      return std::nullopt;
    return group;
  }
  const std::size_t count = request.count() > 0 ? request.count() : tokens_.size();
  if (request.first() >= tokens_.size() || count > tokens_.size() - request.first())
    return std::nullopt;
  group.members.resize(count);
  std::iota(group.members.begin(), group.members.end(), static_cast<int>(request.first()));
  return group;
}

ServerUnaryReactor* Service::Exchange(CallbackServerContext* context,
                                      const wire::ExchangeRequest* request,
                                      wire::ExchangeReply* reply) {
  ServerUnaryReactor* reactor = context->DefaultReactor();
  worker_.post([=, this] { exchange(*request, reactor, reply); });
  return reactor;
}

void Service::exchange(const wire::ExchangeRequest& request, ServerUnaryReactor* reactor,
                       wire::ExchangeReply* reply) {
  std::lock_guard lock(mutex_);
  const auto refuse = [&](StatusCode code, const std::string& why) {
    reactor->Finish({code, why});
  };
  const int rank = rank_of(request.session());
  if (rank < 0) return reactor->Finish(kNoSession);
  if (request.value().size() > kLongestExchange || request.key().size() > 256)
    return refuse(StatusCode::INVALID_ARGUMENT, "too long");
  const std::optional<Group> group = group_of(request);
  if (!group) return refuse(StatusCode::INVALID_ARGUMENT, "no such group");
  if (!group->has(rank)) return refuse(StatusCode::INVALID_ARGUMENT, "not in it");
  if (request.members_size() > 0 && request.epoch() != epoch_.number)
    return refuse(StatusCode::ABORTED, "the ranks have changed: " + epoch_.cause);
  if (const auto done = answered_.find({request.key(), group->members}); done != answered_.end()) {
    for (const std::string& value : done->second) reply->add_values(value);
    return reactor->Finish(Status::OK);
  }
  const auto entry = exchanges_.try_emplace({request.key(), group->members}).first;
  PendingExchange& pending = entry->second;
  pending.group = *group;
  pending.values[rank] = request.value();
  // The rank repeats a call whose deadline has passed; nobody reads the earlier answer.
  if (const auto old = pending.waiting.find(rank); old != pending.waiting.end()) {
    old->second.first->Finish(Status::CANCELLED);
  }
  pending.waiting[rank] = {reactor, reply};
  if (pending.values.size() == group->members.size()) return finish_exchange(entry);
  if (!broken_.empty()) fail_exchanges(broken_);
  if (awaits_ended_evaluator(pending)) pending.fail("the evaluator has ended");
}

void Service::finish_exchange(Exchanges::iterator entry) {
  PendingExchange& pending = entry->second;
  if (options_.store) {
    std::vector<std::string>& values = answered_[entry->first];
    for (const auto& [rank, value] : pending.values) values.push_back(value);
  }
  const Status status = save() ? Status::OK : kStoreLost;
  for (auto& [rank, call] : pending.waiting) {
    for (const auto& [value_rank, value] : pending.values) call.second->add_values(value);
    call.first->Finish(status);
  }
  exchanges_.erase(entry);
}

void PendingExchange::fail(const std::string& why) {
  for (auto& [rank, call] : waiting) call.first->Finish(Status(StatusCode::ABORTED, why));
  waiting.clear();
}

bool Service::awaits_ended_evaluator(const PendingExchange& pending) const {
  const Roles& roles = members_.roles();
  const int evaluator = roles.first(Role::Evaluator);
  if (!roles.evaluator || !pending.awaits(evaluator)) return false;
  const Phase phase = members_.phase(evaluator);
  return phase == Phase::Left || phase == Phase::Ended;
}

void Service::fail_exchanges(const std::string& why) {
  for (auto& [key, pending] : exchanges_) pending.fail(why);
}

ServerUnaryReactor* Service::Heartbeat(CallbackServerContext* context,
                                       const wire::HeartbeatRequest* request,
                                       wire::HeartbeatReply* reply) {
  return serve(context, [=, this] {
    std::lock_guard lock(mutex_);
    const int rank = rank_of(request->session());
    if (rank < 0) return kNoSession;
    const TimePoint now = steady_now();
    members_.beat(rank, activity_from(request->activity()), now);
    fill(members_.table(now), *reply);
    return Status::OK;
  });
}

grpc::ServerWriteReactor<wire::News>* Service::Watch(CallbackServerContext*,
                                                     const wire::WatchRequest* request) {
  auto* watcher = new Watcher(worker_, mutex_);  // deletes itself
  worker_.post([=, this, asked = *request] {
    const std::optional<int> joined = begin_watch(watcher, asked);
    if (joined && options_.on_joined) options_.on_joined(*joined);
  });
  return watcher;
}

std::optional<int> Service::begin_watch(Watcher* watcher, const wire::WatchRequest& request) {
  std::lock_guard lock(mutex_);
  const int rank = rank_of(request.session());
  watcher->open(rank, watchers_,
                [this, rank, stream = request.stream()] { on_stream_end(rank, stream); });
  if (rank < 0) {
    watcher->finish(kNoSession);
    return std::nullopt;
  }
  watches_[rank] = request.stream() >= next_stream_[rank];
  latest_stream_[rank] = request.stream();
  wire::News first;
  first.set_watching(true);
  watcher->push(first);
  wire::News news;
  if (stop_signal_ != 0) {
    news.set_stop_signal(stop_signal_);
    watcher->push(news);
  }
  if (is_finished_for(rank)) {
    news.set_finished(true);
    watcher->push(news);
  }
  if (elastic()) {
    fill(epoch_, *news.mutable_epoch());
    watcher->push(news);
  }
  if (options_.servers > 0) {
    news.set_server_view(servers_.view().to_text());
    watcher->push(news);
  }
  if (announced_) {
    fill(*members_.first_failure(), *news.mutable_failure());
    watcher->push(news);
  }
  return elastic() ? std::optional(rank) : std::nullopt;
}

ServerUnaryReactor* Service::StopWatching(CallbackServerContext* context,
                                          const wire::WatchRequest* request, wire::Empty*) {
  return serve(context, [=, this] {
    std::lock_guard lock(mutex_);
    const int rank = rank_of(request->session());
    if (rank < 0) return kNoSession;
    watches_[rank] = false;
    next_stream_[rank] = request->stream() + 1;  // its Watch may still arrive
    return Status::OK;
  });
}

// The end of a process closes its connections, on any host.
void Service::on_stream_end(int rank, std::uint32_t stream) {
  if (!options_.lost_with_stream || rank < 0 || !watches_[rank]) return;
  if (stream < next_stream_[rank] || stream < latest_stream_[rank]) return;
  watches_[rank] = false;
  if (members_.phase(rank) != Phase::Joined) return;
  const std::string who = members_.roles().name_of(rank) + " on host " + members_.host(rank);
  if (elastic()) {
    if (options_.on_gone) options_.on_gone(rank, who + " is gone");
    return;
  }
  const Roles& roles = members_.roles();
  if (roles.role_of(rank) == Role::Server && lose_server(roles.number_of(rank))) return;
  members_.end(rank);
  if (members_.roles().role_of(rank) == Role::Evaluator) return gone(rank, who + " is gone");
  const bool news =
      members_.fail({.rank = rank,
                     .host = members_.host(rank),
                     .sentence = who + " is gone: its process ended without a word. See "
                                       "what its launcher says of it",
                     .exit_code = static_cast<int>(ExitCode::PeerLost)});
  if (news) announce();
  gone(rank, who + " is gone");
}

ServerUnaryReactor* Service::ReportFailure(CallbackServerContext* context,
                                           const wire::FailureReport* request, wire::Empty*) {
  return serve(context, [=, this] { return report(*request); });
}

Status Service::report(const wire::FailureReport& request) {
  Failure failure;
  {
    std::lock_guard lock(mutex_);
    const int rank = rank_of(request.session());
    if (rank < 0) return kNoSession;
    // The launcher prints such a failure when the process has ended.
    failure = failure_from(request.failure());
    if (members_.roles().role_of(rank) == Role::Evaluator ||
        (failure.secondary() && can_lose(rank)) || !matters(rank))
      return Status::OK;
    failure.rank = rank;
    record(failure);
  }
  if (options_.on_failure) options_.on_failure(failure);
  return Status::OK;
}

ServerUnaryReactor* Service::Leave(CallbackServerContext* context,
                                   const wire::LeaveRequest* request, wire::Empty*) {
  return serve(context, [=, this] { return leave(*request); });
}

Status Service::leave(const wire::LeaveRequest& request) {
  int rank = -1;
  {
    std::lock_guard lock(mutex_);
    rank = rank_of(request.session());
    if (rank < 0) return kNoSession;
    members_.leave(rank);
    gone(rank, members_.roles().name_of(rank) + " has left the job");
  }
  if (options_.on_left) options_.on_left(rank, request.exit_code());
  return Status::OK;
}

// Fails only those exchanges to which the rank has not yet given its value.
void Service::gone(int rank, const std::string& why) {
  // The others go on without the evaluator.
  if (members_.roles().role_of(rank) != Role::Evaluator) broken_ = why;
  for (auto& [key, pending] : exchanges_) {
    if (pending.awaits(rank)) pending.fail(why);
  }
  wire::News news;
  news.set_left_rank(static_cast<std::uint32_t>(rank));
  tell_all(news);
}

// The others go on without the evaluator.
bool Service::record(Failure failure) {
  if (members_.roles().role_of(failure.rank) == Role::Evaluator) return false;
  const bool secondary = failure.secondary();
  if (failure.host.empty()) failure.host = members_.host(failure.rank);
  const bool first = members_.fail(std::move(failure));
  if (first && !secondary) announce();
  return first;
}

void Service::announce() {
  const auto failure = members_.first_failure();
  if (announced_ || !failure) return;
  announced_ = true;
  wire::News news;
  fill(*failure, *news.mutable_failure());
  tell_all(news);
  broken_ = failure->sentence;
  fail_exchanges(broken_);
}

void Service::adopt(const Epoch& epoch) {
  epoch_ = epoch;
  members_.set_members(epoch.members, steady_now());
}

void Service::regroup(const Epoch& epoch) {
  adopt(epoch);
  answered_.clear();
  if (!save()) return;
  fail_exchanges("the job regroups: " + epoch.cause);
  exchanges_.clear();
  broken_.clear();
  wire::News news;
  fill(epoch_, *news.mutable_epoch());
  tell_all(news);
}

// A process that is only thought to have ended is a stranger from now on.
void Service::forget(int process) {
  members_.forget(process);
  tokens_[process].clear();
  for (Watcher* watcher : watchers_)
    if (watcher->process() == process) watcher->finish(kNoSession);
  save();
}

void Service::tell_all(const wire::News& news) {
  for (Watcher* watcher : watchers_) watcher->push(news);
}

void Service::stop(int signal) {
  std::lock_guard lock(mutex_);
  stop_signal_ = signal;
  if (!save()) return;
  wire::News news;
  news.set_stop_signal(signal);
  tell_all(news);
}

void Service::finish(bool workers_only) {
  std::lock_guard lock(mutex_);
  (workers_only ? workers_finished_ : finished_) = true;
  if (!save()) return;
  wire::News news;
  news.set_finished(true);
  for (Watcher* watcher : watchers_)
    if (is_finished_for(watcher->process())) watcher->push(news);
}

void Service::close() {
  std::lock_guard lock(mutex_);
  broken_ = "the launcher is ending";
  watches_.assign(watches_.size(), false);
  fail_exchanges(broken_);
  // Another coordinator goes on from the store.
  const bool returns = options_.store && !store_cleared_;
  for (Watcher* watcher : watchers_)
    watcher->finish(returns ? Status(StatusCode::UNAVAILABLE, "the coordinator ends") : Status::OK);
}

}  // namespace trireme::inline v0::rendezvous
