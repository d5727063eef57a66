#include "trireme/launch/coordinator/standing_coordinator.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/waiter/in_context.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/base/words.h"
#include "trireme/launch/coordinator/standing_workers.h"
#include "trireme/launch/hosts/sources.h"
#include "trireme/launch/output.h"
#include "trireme/rendezvous/coordinator/coordinator.h"

namespace trireme::inline v0::launch {
namespace {

using rendezvous::Epoch;
using rendezvous::Failure;

constexpr Duration kWatchEvery = std::chrono::milliseconds(100);
// Other processes hear of the job's end, and leave, within this time.
constexpr Duration kFarewell = std::chrono::seconds(5);

ElasticOptions without_limit(ElasticOptions options) {
  options.restarts = std::numeric_limits<int>::max();
  return options;
}

rendezvous::Roles roles_of(const StandingOptions& options) {
  const int most = options.elastic.max + options.elastic.spares;
  if (options.alone == 0) return {.workers = most, .servers = options.servers};
  return {
      .workers = options.alone, .servers = options.servers, .more_workers = most - options.alone};
}

// Without ranks. Workers on their own are members from the start, whether they are there or not.
Epoch first_epoch(const StandingOptions& options) {
  Epoch epoch;
  const rendezvous::Roles roles = roles_of(options);
  for (int process = 0; options.alone > 0 && process < roles.processes(); ++process)
    if (roles.role_of(process) == Role::Worker) epoch.members.push_back(process);
  return epoch;
}

// Looks at half a silence: some processes fall silent a heartbeat or two before the others.
bool hears_nobody(const rendezvous::Coordinator& coordinator, Duration silence) {
  const Duration recently = silence / 2;
  return !coordinator.snapshot().joined.empty() && !coordinator.awaits_workers(recently) &&
         !coordinator.awaits_others(recently);
}

// Everything but the constructor and run() happens in its waiter's progress context. Processes may
// come before start() has ended; their news are handled after it.
class StandingCoordinator {
 public:
  explicit StandingCoordinator(const StandingOptions& options);
  ~StandingCoordinator();
  int run();

 private:
  void start();
  std::unique_ptr<rendezvous::Coordinator> make_coordinator();
  std::unique_ptr<StandingWorkers> make_workers(const rendezvous::JobSnapshot& job);
  void joined(int process);
  void server_joined(int process);
  void broken(int process, const std::string& how);
  void gone(int process, const std::string& how);
  void server_gone(int process, const std::string& how);
  void unreachable(int server);
  void report_copy(int shard, int server) const;
  void left(int process, int exit_code);
  void failed(const Failure& failure);
  void fail(const Failure& failure);
  void carry_out(const StandingWorkers::Decision& decision);
  bool gives_up_awaited(TimePoint now) const;
  void watch();
  void lose_silent();
  void give_up_waiting();
  void end(int exit_code, const std::string& line);
  bool is_server(int process) const { return roles_.role_of(process) == Role::Server; }
  bool servers_are_there() const { return static_cast<int>(servers_.size()) == roles_.servers; }
  bool is_ending() const { return exit_code_ >= 0 || workers_->over(); }

  const StandingOptions& options_;
  const ElasticOptions elastic_;
  const rendezvous::Roles roles_;
  std::optional<BlockedSignals> blocked_;  // before any thread
  std::shared_ptr<RealWaiter> waiter_;
  std::shared_ptr<SignalSource> signals_;
  std::unique_ptr<rendezvous::Coordinator> coordinator_;
  std::unique_ptr<StandingWorkers> workers_;
  std::set<int> servers_;                // processes that are there
  std::set<int> replaced_servers_;       // numbers of those that were lost before
  std::vector<int> awaited_;             // known to the earlier coordinator, and not back yet
  std::optional<TimePoint> first_back_;  // when the first of them came back
  std::optional<TimePoint> too_few_;     // since when
  TimePoint began_{}, looked_{};
  bool deaf_ = false;
  std::optional<TimePoint> end_at_;  // when nobody is waited for any more
  int exit_code_ = -1;
  std::exception_ptr store_lost_;
  std::atomic<bool> done_{false};
};

// With a store this process may end at any time, so it handles only the signal to stop the ranks.
StandingCoordinator::StandingCoordinator(const StandingOptions& options)
    : options_(options), elastic_(without_limit(options.elastic)), roles_(roles_of(options)) {
  // Throws before any process can come.
  if (options.alone == 0) static_cast<void>(ElasticGroup(elastic_, elastic_.max));
  options.store ? blocked_.emplace(std::initializer_list<int>{SIGUSR1}) : blocked_.emplace();
  waiter_ = RealWaiter::make(Duration::zero());
  in_context(waiter_, [this] { start(); });
  signals_ = std::make_shared<SignalSource>(*blocked_, [this](int signal) {
    if (signal == SIGTSTP) return;
    const int stop = stop_signal_for(signal);
    coordinator_->request_stop(stop);
    if (!workers_->begun())
      return end(128 + stop, "the coordinator was asked to stop before the job had begun.");
    say("the coordinator asks the ranks to stop.");
  });
  waiter_->add(signals_);
}

void StandingCoordinator::start() {
  coordinator_ = make_coordinator();
  const rendezvous::JobSnapshot& job = coordinator_->found();
  awaited_ = job.joined;
  std::copy_if(awaited_.begin(), awaited_.end(), std::inserter(servers_, servers_.end()),
               [this](int process) { return is_server(process); });
  workers_ = make_workers(job);
  if (workers_->begun())
    say("the coordinator goes on with the job in " + options_.store->address() + ": " +
        workers_->describe() + ".");
  // The earlier coordinator may have ended between two changes, or before it acted on a leave.
  for (const auto& [process, exit_code] : job.left) left(process, exit_code);
  // Absent workers on their own are no loss.
  if (!workers_->begun() || options_.alone > 0) return;
  for (const int process : job.epoch.members)
    if (!std::ranges::binary_search(job.joined, process) && !job.left.contains(process))
      gone(process, roles_.name_of(process) + " was gone before this coordinator began");
}

StandingCoordinator::~StandingCoordinator() {
  waiter_->remove(signals_.get());
  coordinator_->close();
  waiter_.reset();
}

std::unique_ptr<rendezvous::Coordinator> StandingCoordinator::make_coordinator() {
  // Never at once, because some callers hold the coordinator's lock.
  const auto post = [this](auto task) { waiter_->run_at(waiter_->now(), std::move(task)); };
  return std::make_unique<rendezvous::Coordinator>(rendezvous::CoordinatorOptions{
      .roles = roles_,
      .address = options_.address,
      .port = options_.port,
      .secret = options_.secret,
      .job = options_.job,
      .elastic = first_epoch(options_),
      .lost_with_stream = true,
      .on_failure = [this, post](const Failure& failure) { post([=, this] { failed(failure); }); },
      .on_server_lost = [this, post](int server) { post([=, this] { unreachable(server); }); },
      .on_new_copy = [this, post](int shard,
                                  int server) { post([=, this] { report_copy(shard, server); }); },
      .on_joined = [this, post](int process) { post([=, this] { joined(process); }); },
      .on_left = [this, post](int process, int code) { post([=, this] { left(process, code); }); },
      .on_gone = [this, post](
                     int process,
                     const std::string& how) { post([=, this] { broken(process, how); }); },
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

std::unique_ptr<StandingWorkers> StandingCoordinator::make_workers(
    const rendezvous::JobSnapshot& job) {
  KnownWorkers known{.epoch = job.epoch, .ended_with = job.ended_with};
  std::copy_if(awaited_.begin(), awaited_.end(), std::back_inserter(known.joined),
               [this](int process) { return !is_server(process); });
  if (options_.alone == 0) return ranks_of_epochs(elastic_, options_.gather, known);
  const auto begun = [this] {
    const std::vector<int> all = coordinator_->snapshot().epoch.members;
    return std::ranges::any_of(all,
                               [this](int worker) { return coordinator_->trains_alone(worker); });
  };
  return workers_on_their_own({elastic_.min, elastic_.max}, roles_, begun, known);
}

int StandingCoordinator::run() {
  if (options_.on_ready) options_.on_ready(coordinator_->endpoint());
  waiter_->run([this] {
    began_ = waiter_->now();
    watch();
  });
  waiter_->wait_until([this] { return done_.load(); }, TimePoint::max());
  if (store_lost_) std::rethrow_exception(store_lost_);
  try {
    coordinator_->clear_store();
  } catch (const ResourceError& error) {
    say("the job has ended, but its state stays in " + options_.store->address() + ": " +
        error.message() + ". Remove it before another job uses this store.");
  }
  return exit_code_;
}

void StandingCoordinator::joined(int process) {
  if (std::erase(awaited_, process) > 0 && !first_back_) first_back_ = waiter_->now();
  if (exit_code_ >= 0) return;
  is_server(process) ? server_joined(process) : carry_out(workers_->joined(process));
}

void StandingCoordinator::server_joined(int process) {
  if (!servers_.insert(process).second || workers_->begun()) return;
  say(roles_.name_of(process) + " has come; " + std::to_string(servers_.size()) + " of " +
      std::to_string(roles_.servers) + " servers are there.");
}

void StandingCoordinator::carry_out(const StandingWorkers::Decision& decision) {
  if (decision.epoch) coordinator_->regroup(*decision.epoch);
  if (decision.stop) coordinator_->request_stop(*decision.stop);
  using Tell = StandingWorkers::Tell;
  if (decision.end_told_to != Tell::Nobody)
    coordinator_->finish(decision.told_code, decision.end_told_to == Tell::Workers);
  if (decision.exit_code) return end(*decision.exit_code, decision.line);
  if (!decision.line.empty()) say(decision.line);
}

// While nobody is heard, the end of a connection means no more than silence: a network that works
// again resets it, and the process comes back. An awaited process has a successor already.
void StandingCoordinator::broken(int process, const std::string& how) {
  const bool awaited = std::ranges::count(awaited_, process) > 0;
  if (!deaf_ || awaited || is_ending()) return gone(process, how);
  awaited_.push_back(process);
}

void StandingCoordinator::gone(int process, const std::string& how) {
  std::erase(awaited_, process);
  if (is_server(process)) return server_gone(process, how);
  coordinator_->forget(process);
  if (exit_code_ < 0) carry_out(workers_->lost(process, how, waiter_->now()));
}

void StandingCoordinator::server_gone(int process, const std::string& how) {
  servers_.erase(process);
  if (exit_code_ >= 0 || coordinator_->snapshot().finished) return coordinator_->forget(process);
  const int server = roles_.number_of(process);
  if (!workers_->begun()) {
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
  if (workers_->over()) return;  // rank 0 has saved
  fail({.rank = process,
        .operation = "parameter server",
        .sentence = how + ", and nobody else has its shard. Started again, the job goes on from "
                          "its checkpoint; server.replicas = 2 keeps a copy.",
        .exit_code = static_cast<int>(ExitCode::PeerLost)});
}

void StandingCoordinator::fail(const Failure& failure) {
  coordinator_->fail(failure);
  coordinator_->announce_failure();
  end(failure.exit_code, failure.sentence);
}

// The others have gone on without the server, so its process may not come back.
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
  if (!is_server(process) && exit_code_ < 0) carry_out(workers_->left(process, exit_code));
}

void StandingCoordinator::failed(const Failure& failure) {
  if (failure.stopped() || failure.secondary() || is_ending()) return;
  end(failure.exit_code, failure.sentence);
}

void StandingCoordinator::end(int exit_code, const std::string& line) {
  if (exit_code_ >= 0) return;
  exit_code_ = exit_code;
  say(line);
  end_at_ = waiter_->now() + kFarewell;
}

// Processes notice a coordinator's end at once, but a vanished host only after `silence`. They then
// come back within a heartbeat or two of each other.
bool StandingCoordinator::gives_up_awaited(TimePoint now) const {
  return first_back_ ? now - began_ > elastic_.silence && now - *first_back_ > elastic_.silence / 2
                     : now - began_ > 2 * elastic_.silence;
}

void StandingCoordinator::watch() {
  const TimePoint now = waiter_->now();
  if (looked_ != TimePoint() && now - looked_ > elastic_.silence / 2)
    coordinator_->forgive_silence();  // this process itself was stopped, and heard nobody
  looked_ = now;
  if (end_at_ && (now >= *end_at_ || coordinator_->snapshot().joined.empty())) {
    done_ = true;
    return waiter_->wake();
  }
  if (!awaited_.empty() && !deaf_ && gives_up_awaited(now)) {
    const std::vector<int> unreached = coordinator_->snapshot().unreached;
    for (const int process : std::exchange(awaited_, {}))
      if (std::ranges::binary_search(unreached, process))
        gone(process, roles_.name_of(process) + " has not come back to the coordinator");
  }
  lose_silent();
  if (exit_code_ < 0) carry_out(workers_->watch(now, servers_are_there()));
  give_up_waiting();
  waiter_->run_at(now + kWatchEvery, [this] { watch(); });
}

// A coordinator that hears nobody may itself be cut off, but not from its store. Processes that it
// gave up in the store could not come back to its successor, so it decides later; nobody waits for
// that. gives_up_awaited() says how long processes are awaited.
void StandingCoordinator::lose_silent() {
  const std::vector<int> silent = coordinator_->silent(elastic_.silence);
  if (!is_ending() && hears_nobody(*coordinator_, elastic_.silence)) {
    if (silent.empty() || std::exchange(deaf_, true)) return;
    say("the coordinator hears no process any more, and waits until one comes or is heard again.");
    first_back_.reset();  // from now on as when it began
  } else if (std::exchange(deaf_, false)) {
    coordinator_->forgive_silence();  // others are heard a little later
    began_ = waiter_->now();
  } else {
    for (const int process : silent)
      if (std::ranges::count(awaited_, process) == 0)
        gone(process, roles_.name_of(process) + " has sent no heartbeat for " +
                          duration_text(to_seconds(elastic_.silence)));
  }
}

void StandingCoordinator::give_up_waiting() {
  std::string lack = deaf_ ? "no process was heard" : workers_->lack();
  if (!workers_->begun() && !servers_are_there())
    lack = "there were only " + std::to_string(servers_.size()) + " of " +
           counted(roles_.servers, "server");
  if (exit_code_ >= 0 || lack.empty()) return too_few_.reset();
  const TimePoint now = waiter_->now();
  if (!too_few_) too_few_ = now;
  if (now - *too_few_ < options_.patience) return;
  fail({.rank = 0,
        .operation = "coordinator",
        .sentence = "for " + duration_text(to_seconds(options_.patience)) + " " + lack + ".",
        .exit_code = static_cast<int>(ExitCode::Timeout)});
}

}  // namespace

int coordinate(const StandingOptions& options) { return StandingCoordinator(options).run(); }

}  // namespace trireme::inline v0::launch
