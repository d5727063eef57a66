#include "trireme/launch/standing_coordinator.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/real_waiter.h"
#include "trireme/base/words.h"
#include "trireme/launch/output.h"
#include "trireme/launch/sources.h"
#include "trireme/rendezvous/coordinator.h"

namespace trireme::inline v0::launch {
namespace {

using rendezvous::Epoch;
using rendezvous::Failure;

constexpr Duration kWatchEvery = std::chrono::milliseconds(100);
// After the last rank's end the others hear of it, and leave, within this time.
constexpr Duration kFarewell = std::chrono::seconds(5);

double seconds_of(Duration duration) { return std::chrono::duration<double>(duration).count(); }

ElasticOptions without_limit(ElasticOptions options) {
  options.restarts = std::numeric_limits<int>::max();
  return options;
}

// Everything but the constructor and run() happens in its waiter's progress context.
class StandingCoordinator {
 public:
  explicit StandingCoordinator(const StandingOptions& options);
  ~StandingCoordinator();
  int run();

 private:
  std::unique_ptr<rendezvous::Coordinator> make_coordinator();
  void joined(int process);
  void server_joined(int process);
  void begin();
  void gone(int process, const std::string& how);
  void server_gone(int process, const std::string& how);
  void unreachable(int server);
  void report_copy(int shard, int server) const;
  void left(int process, int exit_code);
  void failed(const Failure& failure);
  void fail(const Failure& failure);
  void carry_out(const ElasticGroup::Decision& decision);
  void note_end(int process);
  bool gives_up_awaited(TimePoint now) const;
  void watch();
  void give_up_waiting();
  void end(int exit_code, const std::string& line);
  bool is_member(int process) const { return group_->is_member(process); }
  bool is_server(int process) const { return roles_.role_of(process) == Role::Server; }
  bool is_ending() const { return exit_code_ >= 0 || finished_; }

  const StandingOptions& options_;
  const ElasticOptions elastic_;
  const rendezvous::Roles roles_;
  std::optional<BlockedSignals> blocked_;  // before any thread
  std::shared_ptr<RealWaiter> waiter_;
  std::shared_ptr<SignalSource> signals_;
  std::unique_ptr<rendezvous::Coordinator> coordinator_;
  std::optional<ElasticGroup> group_;
  bool gathering_ = true;
  std::optional<TimePoint> enough_;  // while it gathers: since when there are `min` processes
  std::set<int> gathered_;           // workers, while it gathers
  std::set<int> servers_;            // processes that are there
  std::set<int> replaced_servers_;   // numbers of those that were lost before
  std::vector<int> awaited_;  // those whom the one before this one knew, and who are not back
  std::optional<TimePoint> first_back_;  // when the first of them came back
  std::optional<TimePoint> too_few_;     // since when
  TimePoint began_{}, looked_{};
  std::set<int> ended_;    // members that have left or are gone, after the first one's end
  bool finished_ = false;  // a member has left, so the training has ended
  int stop_code_ = 0;      // 130 or 143: it has ended since it was asked to
  std::optional<Failure> failure_;
  std::optional<TimePoint> end_at_;  // when nobody is waited for any more
  int exit_code_ = -1;
  std::exception_ptr store_lost_;
  std::atomic<bool> done_{false};
};

// With a store this process may end at any time, so only the signal that stops the ranks is handled.
StandingCoordinator::StandingCoordinator(const StandingOptions& options)
    : options_(options),
      elastic_(without_limit(options.elastic)),
      roles_{.workers = elastic_.max + elastic_.spares, .servers = options.servers} {
  options.store ? blocked_.emplace(std::initializer_list<int>{SIGUSR1}) : blocked_.emplace();
  waiter_ = RealWaiter::make(Duration::zero());
  coordinator_ = make_coordinator();
  const Epoch epoch = coordinator_->epoch();
  awaited_ = coordinator_->joined();
  std::vector<int> workers;
  for (const int process : awaited_)
    is_server(process) ? void(servers_.insert(process)) : workers.push_back(process);
  group_.emplace(elastic_, epoch, workers);
  gathering_ = epoch.number == 0;
  finished_ = coordinator_->finished();
  if (gathering_)
    gathered_.insert(workers.begin(), workers.end());
  else
    say("goes on with the job in " + options.store->address() + ": epoch " +
        std::to_string(epoch.number) + ", " +
        counted(static_cast<int>(epoch.members.size()), "rank") + ".");
  signals_ = std::make_shared<SignalSource>(*blocked_, [this](int signal) {
    if (signal == SIGTSTP) return;
    say("asks the ranks to stop.");
    coordinator_->request_stop(stop_signal_for(signal));
  });
  waiter_->add(signals_);
}

StandingCoordinator::~StandingCoordinator() {
  waiter_->remove(signals_.get());
  coordinator_->close();
  waiter_.reset();
}

std::unique_ptr<rendezvous::Coordinator> StandingCoordinator::make_coordinator() {
  // Never at once: some callers hold the coordinator's lock.
  const auto post = [this](auto task) { waiter_->run_at(waiter_->now(), std::move(task)); };
  return std::make_unique<rendezvous::Coordinator>(rendezvous::CoordinatorOptions{
      .size = roles_.workers,
      .servers = roles_.servers,
      .address = options_.address,
      .port = options_.port,
      .secret = options_.secret,
      .job = options_.job,
      .elastic = Epoch{},
      .lost_with_stream = true,
      .on_failure = [this, post](const Failure& failure) { post([=, this] { failed(failure); }); },
      .on_server_lost = [this, post](int server) { post([=, this] { unreachable(server); }); },
      .on_new_copy = [this, post](int shard,
                                  int server) { post([=, this] { report_copy(shard, server); }); },
      .on_joined = [this, post](int process) { post([=, this] { joined(process); }); },
      .on_left = [this, post](int process, int code) { post([=, this] { left(process, code); }); },
      .on_gone = [this, post](int process,
                              const std::string& how) { post([=, this] { gone(process, how); }); },
      .heartbeat = elastic_.silence / rendezvous::kSilentHeartbeats,
      .store = options_.store,
      .returns_within = options_.store ? options_.patience : Duration::zero(),
      .store_patience = options_.patience,
      .on_store_lost =
          [this, post](const std::exception_ptr& error) {
            post([=, this] {
              store_lost_ = error;
              done_ = true;
              waiter_->wake();
            });
          }});
}

int StandingCoordinator::run() {
  began_ = waiter_->now();
  if (options_.on_ready) options_.on_ready(coordinator_->endpoint());
  waiter_->run([this] { watch(); });
  waiter_->wait_until([this] { return done_.load(); }, TimePoint::max());
  if (store_lost_) std::rethrow_exception(store_lost_);
  coordinator_->clear_store();
  return exit_code_;
}

void StandingCoordinator::joined(int process) {
  if (std::erase(awaited_, process) > 0 && !first_back_) first_back_ = waiter_->now();
  if (is_ending()) return;
  if (is_server(process)) return server_joined(process);
  if (!gathering_) return carry_out(group_->joined(process));
  gathered_.insert(process);
  const int count = static_cast<int>(gathered_.size());
  say("process " + std::to_string(process) + " has come; " + std::to_string(count) + " of " +
      std::to_string(elastic_.max) + " are there.");
}

void StandingCoordinator::server_joined(int process) {
  if (!servers_.insert(process).second || !gathering_) return;
  say(roles_.name_of(process) + " has come; " + std::to_string(servers_.size()) + " of " +
      std::to_string(roles_.servers) + " servers are there.");
}

// The job's first epoch that has ranks.
void StandingCoordinator::begin() {
  gathering_ = false;
  ElasticGroup::Decision first;
  for (const int process : gathered_)
    if (auto decision = group_->joined(process); decision.epoch) first = std::move(decision);
  if (!first.epoch) return;
  const std::string ranks = counted(static_cast<int>(first.epoch->members.size()), "rank");
  first.epoch->at_step_end = false;
  first.epoch->interrupted = first.epoch->number;
  first.epoch->cause = "the job begins with " + ranks;
  first.line = first.epoch->cause + ".";
  carry_out(first);
}

void StandingCoordinator::carry_out(const ElasticGroup::Decision& decision) {
  if (decision.epoch) coordinator_->regroup(*decision.epoch);
  if (!decision.line.empty()) say(decision.line);
}

void StandingCoordinator::gone(int process, const std::string& how) {
  std::erase(awaited_, process);
  if (is_server(process)) return server_gone(process, how);
  coordinator_->forget(process);
  gathered_.erase(process);
  if (is_ending()) return note_end(process);
  if (gathering_) return say(how + " before the job has begun.");
  carry_out(group_->lost(process, how, /*again=*/true, waiter_->now()));
}

void StandingCoordinator::server_gone(int process, const std::string& how) {
  servers_.erase(process);
  if (is_ending()) return coordinator_->forget(process);
  const int server = roles_.number_of(process);
  if (gathering_) {
    coordinator_->reset_server(server);
    return say(how + " before the job has begun.");
  }
  const auto view = coordinator_->lose_server(server);
  coordinator_->forget(process);
  if (view) {
    replaced_servers_.insert(server);
    return say(how + "; server " + std::to_string(view->primary(server)) +
               " has its shard; the job goes on.");
  }
  const Failure failure{.rank = process,
                        .operation = "parameter server",
                        .sentence = how +
                                    ", and nobody else has its shard. Started again, the job goes "
                                    "on from its checkpoint; server.replicas = 2 keeps a copy.",
                        .exit_code = static_cast<int>(ExitCode::PeerLost)};
  fail(failure);
}

void StandingCoordinator::fail(const Failure& failure) {
  coordinator_->fail(failure);
  coordinator_->announce_failure();
  end(failure.exit_code, failure.sentence);
}

// The others have gone on without it, so its process is a stranger.
void StandingCoordinator::unreachable(int server) {
  const int process = roles_.process_of(Role::Server, server);
  servers_.erase(process);
  replaced_servers_.insert(server);
  coordinator_->forget(process);
  if (!is_ending())
    say("the others cannot reach " + roles_.name_of(process) + " and go on without it.");
}

void StandingCoordinator::report_copy(int shard, int server) const {
  if (replaced_servers_.contains(server))
    say("server " + std::to_string(server) + " is back, with a copy of shard " +
        std::to_string(shard) + ".");
}

void StandingCoordinator::left(int process, int exit_code) {
  if (exit_code == 1) return gone(process, roles_.name_of(process) + " has left by an exception");
  if (!is_member(process)) {
    gathered_.erase(process);
    return;
  }
  if (exit_code != 0) stop_code_ = exit_code;
  if (!std::exchange(finished_, true)) coordinator_->finish();
  note_end(process);
}

void StandingCoordinator::note_end(int process) {
  if (!finished_ || !is_member(process)) return;
  ended_.insert(process);
  if (ended_.size() < group_->epoch().members.size()) return;
  end(stop_code_, stop_code_ == 0 ? "the job has ended." : "the job was stopped, as it was asked.");
}

void StandingCoordinator::failed(const Failure& failure) {
  if (failure.exit_code == 130 || failure.exit_code == 143 || failure.secondary() || is_ending())
    return;
  end(failure.exit_code, failure.sentence);
}

void StandingCoordinator::end(int exit_code, const std::string& line) {
  if (exit_code_ >= 0) return;
  exit_code_ = exit_code;
  say(line);
  end_at_ = waiter_->now() + kFarewell;
}

// Processes know at once that a coordinator has ended, but only after `silence` that its host has
// vanished; then they come one after the other, within a heartbeat or two.
bool StandingCoordinator::gives_up_awaited(TimePoint now) const {
  return first_back_ ? now - began_ > elastic_.silence && now - *first_back_ > elastic_.silence / 2
                     : now - began_ > 2 * elastic_.silence;
}

void StandingCoordinator::watch() {
  const TimePoint now = waiter_->now();
  if (looked_ != TimePoint() && now - looked_ > elastic_.silence / 2)
    coordinator_->forgive_silence();  // this process was stopped itself, and heard nobody
  looked_ = now;
  if (end_at_ && (now >= *end_at_ || coordinator_->joined().empty())) {
    done_ = true;
    return waiter_->wake();
  }
  if (!awaited_.empty() && gives_up_awaited(now)) {
    const std::vector<int> unreached = coordinator_->unreached();
    for (const int process : std::exchange(awaited_, {}))
      if (std::binary_search(unreached.begin(), unreached.end(), process))
        gone(process, roles_.name_of(process) + " has not come back to the coordinator");
  }
  for (const int process : coordinator_->silent(elastic_.silence))
    gone(process, roles_.name_of(process) + " has sent no heartbeat for " +
                      duration_text(seconds_of(elastic_.silence)));
  if (gathering_) {
    const int count = static_cast<int>(gathered_.size());
    if (count < elastic_.min || static_cast<int>(servers_.size()) < roles_.servers)
      enough_.reset();
    else if (!enough_)
      enough_ = now;
    const bool all = count >= elastic_.max + elastic_.spares;
    if (enough_ && (all || now - *enough_ >= options_.gather)) begin();
  }
  give_up_waiting();
  waiter_->run_at(now + kWatchEvery, [this] { watch(); });
}

void StandingCoordinator::give_up_waiting() {
  if (is_ending() || !group_->epoch().members.empty()) return too_few_.reset();
  const TimePoint now = waiter_->now();
  if (!too_few_) too_few_ = now;
  if (now - *too_few_ < options_.patience) return;
  const bool servers = !gathering_ || static_cast<int>(servers_.size()) == roles_.servers;
  const std::string lack = servers ? "fewer than " + counted(elastic_.min, "process", "processes") +
                                         ", the least that --elastic allows."
                                   : "only " + std::to_string(servers_.size()) + " of " +
                                         counted(roles_.servers, "server") + ".";
  const Failure failure{
      .rank = 0,
      .operation = "coordinator",
      .sentence = "for " + duration_text(seconds_of(options_.patience)) + " there were " + lack,
      .exit_code = static_cast<int>(ExitCode::Timeout)};
  fail(failure);
}

}  // namespace

int coordinate(const StandingOptions& options) { return StandingCoordinator(options).run(); }

}  // namespace trireme::inline v0::launch
