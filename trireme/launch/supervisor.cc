#include "trireme/launch/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/standard_streams.h"
#include "trireme/launch/kept_coordinator.h"
#include "trireme/launch/rank_end.h"
#include "trireme/launch/spawn.h"
#include "trireme/net/endpoint.h"
#include "trireme/observe/machine.h"
#include "trireme/rendezvous/coordinator.h"
#include "trireme/rendezvous/membership.h"
#include "trireme/rendezvous/secret.h"

namespace trireme::inline v0::launch {
namespace {

// A failure is announced at once. The other ranks have the rest of the 2 s to end by themselves.
constexpr Duration kTermAfter = std::chrono::milliseconds(1000);
constexpr Duration kKillAfter = std::chrono::milliseconds(1600);
// A rank that lost a peer may report it before that peer's end is seen.
constexpr Duration kCauseAfter = std::chrono::milliseconds(300);
// A child process of a rank may keep its pipe open.
constexpr Duration kOutputGrace = std::chrono::milliseconds(300);
// Other hosts end within this time after they were asked.
constexpr Duration kHostGrace = std::chrono::seconds(3);

bool is_readable(int descriptor) {
  pollfd one{descriptor, POLLIN, 0};
  return ::poll(&one, 1, 0) > 0;
}

}  // namespace

class Supervisor::Starter final : public ProgressSource {
 public:
  explicit Starter(Supervisor& supervisor) : supervisor_(supervisor) {}
  bool poll() override { return supervisor_.start_next(); }
  bool pending() const noexcept override { return false; }
  int descriptor() const noexcept override { return -1; }
  void arm(bool) noexcept override {}

 private:
  Supervisor& supervisor_;
};

Supervisor::Supervisor(const LaunchOptions& options)
    : options_(options),
      host_(observe::host_name()),
      roles_(options.roles()),
      hosts_(options),
      secret_(make_secret()),
      restarts_left_(options.restarts),
      elastic_(options.elastic
                   ? std::optional<ElasticGroup>(std::in_place, *options.elastic, options.ranks)
                   : std::nullopt),
      ranks_(static_cast<std::size_t>(std::max(roles_.processes(), 0))),
      num_workers_(options.ranks),
      wanted_workers_(options.ranks) {
  if (options.ranks < 1 || options.servers < 0 || options.command.empty()) {
    throw ConfigError(
        "needs at least one rank and a program",
        {.operation = "launch", .advice = "For example: trireme launch -n 2 -- ./program"});
  }
  if (hosts_.local_processes() > 0) find_program(options.command.front());
  outlive_readers();
  output_ = std::make_unique<Output>(options);
  if (options.handle_signals) blocked_.emplace();
  waiter_ = RealWaiter::make(Duration::zero());
  if (blocked_) {  // at once, so that signals are handled during everything below
    signals_ = std::make_shared<SignalSource>(*blocked_, [this](int one) { on_signal(one); });
    output_->give_up_at(signals_->descriptor());
    waiter_->add(signals_);
  }
  auto coordinator = make_coordinator(options.listen);
  in_context([&] { coordinator_ = std::move(coordinator); });
}

// For several hosts: on all addresses, of both kinds where the system has IPv6.
std::unique_ptr<rendezvous::JobControl> Supervisor::make_coordinator(const std::string& address) {
  if (hosts_.elsewhere() && address != "::" && address != "0.0.0.0") {
    try {
      return make_coordinator("::");
    } catch (const ResourceError&) {
      return make_coordinator("0.0.0.0");
    }
  }
  // Never at once: a coordinator's thread must not wait for the coordinator.
  const auto post = [this](auto task) { waiter_->run_at(waiter_->now(), std::move(task)); };
  rendezvous::CoordinatorOptions options{
      .size = roles_.workers,
      .servers = options_.servers,
      .evaluator = options_.evaluator,
      .more_workers = roles_.more_workers,
      .address = address,
      .secret = secret_,
      .job = std::to_string(getpid()),
      .elastic = elastic_ ? std::optional(elastic_->epoch()) : std::nullopt,
      .on_failure =
          [this, post](const rendezvous::Failure& one) { post([=, this] { on_reported(one); }); },
      .on_server_lost = [this, post](int server) { post([=, this] { end_server(server); }); },
      .on_new_copy = [this, post](int shard,
                                  int server) { post([=, this] { report_copy(shard, server); }); },
      .on_joined =
          [this, post](int process) {
            post([=, this] {
              if (may_change_ranks()) carry_out(elastic_->joined(process));
            });
          },
      // Those who watch for silence do not know the job's own timeout.
      .heartbeat =
          elastic_ ? options_.elastic->silence / rendezvous::kSilentHeartbeats : Duration::zero(),
  };
  if (options_.store.empty()) return std::make_unique<rendezvous::Coordinator>(std::move(options));
  options.returns_within = options.store_patience;
  return std::make_unique<KeptCoordinator>(
      std::move(options),
      KeptOptions{.command = options_.coordinator,
                  .store = options_.store,
                  .interrupted = [this] { return signals_ && is_readable(signals_->descriptor()); },
                  .on_lost =
                      [this, post](const rendezvous::Failure& one) {
                        post([=, this] { lose_coordinator(one); });
                      }});
}

Supervisor::~Supervisor() {
  // Ranks are left only if starting has failed half-way.
  waiter_->run([this] { kill_all(SIGKILL); });
  waiter_->wait_until([this] { return all_ended(); }, waiter_->now() + std::chrono::seconds(5));
  close_hosts();
  if (signals_) waiter_->remove(signals_.get());
  blocked_.reset();       // from here on a signal ends this process
  coordinator_->close();  // its callbacks use the waiter
  waiter_.reset();        // its sources and timers use all other members
}

// On loopback the ranks inherit a new secret, and other hosts get it through ssh; otherwise the user
// must provide one.
std::string Supervisor::make_secret() const {
  const char* file = std::getenv("TRIREME_JOB_SECRET_FILE");
  if (file && *file != '\0') return rendezvous::read_secret_file(file);
  return hosts_.elsewhere() || net::is_loopback(options_.listen)
             ? rendezvous::random_bytes(rendezvous::kSecretBytes)
             : std::string();
}

// Runs `task` in the progress context and waits until it has ended.
void Supervisor::in_context(const std::function<void()>& task) {
  std::atomic<bool> done{false};
  waiter_->run([&] {
    task();
    done = true;
    waiter_->wake();
  });
  waiter_->wait_until([&] { return done.load(); }, TimePoint::max());
}

LaunchResult Supervisor::run() {
  if (options_.time_limit != Duration::max()) {
    waiter_->run_at(waiter_->now() + options_.time_limit, [this] {
      if (all_ended()) return;
      out_of_time_ = true;
      stop_restarting();
      kill_all(SIGKILL);
    });
  }
  open_hosts();
  if (elastic_ || options_.range) in_context([this] { watch_elastic(); });
  starting_ = true;
  const auto starter = std::make_shared<Starter>(*this);
  waiter_->add(starter);
  waiter_->wait_until([this] { return all_ended(); }, TimePoint::max());
  waiter_->remove(starter.get());
  waiter_->wait_until([this] { return hosts_.output_finished(); }, waiter_->now() + kOutputGrace);
  close_hosts();
  LaunchResult last;
  in_context([&] {
    if (!start_error_) last = result();
  });
  if (start_error_) std::rethrow_exception(start_error_);
  return last;
}

// All hosts answer before the first process is started.
void Supervisor::open_hosts() {
  if (hosts_.several()) write_all(STDERR_FILENO, "trireme: " + hosts_.describe() + "\n");
  const HostEvents events{
      .on_line = [this](int rank, bool error,
                        std::string_view line) { output_->line(rank, error, line); },
      .on_start = [this](int rank, pid_t pid) { on_start(rank, pid); },
      .on_end = [this](int rank, const Ending& ending) { on_exit(rank, ending); }};
  hosts_.prepare(secret_, coordinator_->endpoint());
  std::exception_ptr failed;
  in_context([&] {
    try {
      hosts_.open(*waiter_, guard_, events);
    } catch (...) {
      failed = std::current_exception();
    }
  });
  if (failed) std::rethrow_exception(failed);
  waiter_->wait_until([this] { return hosts_.decided() || first_signal_ != 0; },
                      waiter_->now() + options_.elsewhere.patience);
  in_context([&] {
    try {
      if (first_signal_ == 0) hosts_.check();
    } catch (...) {
      failed = std::current_exception();
    }
  });
  if (failed) std::rethrow_exception(failed);
}

void Supervisor::close_hosts() {
  in_context([this] { hosts_.close(); });
  const auto closed = [this] { return hosts_.closed(); };
  if (waiter_->wait_until(closed, waiter_->now() + kHostGrace)) return;
  in_context([this] { hosts_.kill_connections(); });
  waiter_->wait_until(closed, waiter_->now() + kHostGrace);
}

bool Supervisor::start_next() {
  if (!starting_) return false;
  const bool more = !ending_ && !out_of_time_ && first_signal_ == 0;
  while (num_started_ < roles_.processes() && !starts_first(num_started_)) ++num_started_;
  if (more && num_started_ < roles_.processes()) {
    try {
      start_rank(num_started_);
      ++num_started_;
      return true;
    } catch (...) {
      start_error_ = std::current_exception();
      kill_all(SIGKILL);
    }
  }
  starting_ = false;
  waiter_->wake();
  return true;
}

std::vector<std::string> Supervisor::environment_of(int process) const {
  std::vector<std::string> result = options_.environment;
  const auto put = [&](const std::string& name, const std::string& value) {
    result.push_back(name + "=" + value);
  };
  const Role role = roles_.role_of(process);
  put("TRIREME_RANK", std::to_string(roles_.number_of(process)));
  put("TRIREME_SIZE", std::to_string(roles_.count(role)));
  put("TRIREME_ROLE", role == Role::Server      ? "server"
                      : role == Role::Evaluator ? "evaluator"
                                                : "worker");
  put("TRIREME_WORKERS", std::to_string(roles_.workers));
  put("TRIREME_SERVERS", std::to_string(roles_.servers));
  put("TRIREME_EVALUATOR", roles_.evaluator ? "1" : "0");
  put("TRIREME_MORE_WORKERS", std::to_string(roles_.more_workers));
  put("TRIREME_JOB", std::to_string(getpid()));
  put("TRIREME_EPOCH", "0");
  if (elastic_) put("TRIREME_ELASTIC", "1");
  put("TRIREME_RESTARTS", std::to_string(ranks_[static_cast<std::size_t>(process)].restarts));
  return hosts_.environment_of(process, std::move(result));
}

void Supervisor::start_rank(int rank) {
  const bool here = hosts_.is_local(rank);
  const bool direct = here && options_.rank0_direct && (rank == 0 || elastic_) &&
                      options_.log_dir.empty() && !options_.on_line;
  // A rank in its own process group may not read the terminal; rank 0 may read from a pipe or file.
  const bool reads = here && rank == 0 && isatty(STDIN_FILENO) == 0;
  hosts_.host_of(rank).start(rank, {.command = options_.command,
                                    .environment = environment_of(rank),
                                    .direct = direct,
                                    .reads = reads,
                                    .inherit = here ? options_.inherit : std::vector<int>{}});
}

void Supervisor::on_start(int rank, pid_t pid) {
  ranks_[rank].started = true;
  ++running_;
  coordinator_->set_process(rank, pid);
  if (options_.on_start && pid > 0) options_.on_start(rank, pid);
}

void Supervisor::lose_coordinator(const rendezvous::Failure& failure) {
  coordinator_->fail(failure);
  end_all(/*secondary=*/false);
}

void Supervisor::on_reported(const rendezvous::Failure& failure) {
  if (failure.exit_code == 130 || failure.exit_code == 143) return;
  end_all(failure.secondary());
}

void Supervisor::end_all(bool secondary) {
  if (ending_) return;
  if (secondary && !coordinator_->first_failure().has_value()) return;
  ending_ = true;
  stop_restarting();
  const TimePoint now = waiter_->now();
  waiter_->run_at(now + (secondary ? kCauseAfter : Duration::zero()),
                  [this] { coordinator_->announce_failure(); });
  kill_after(kTermAfter, SIGTERM);
  kill_after(kKillAfter, SIGKILL);
}

void Supervisor::kill_after(Duration delay, int signal) {
  waiter_->run_at(waiter_->now() + delay, [this, signal] { kill_all(signal); });
}

void Supervisor::kill_all(int signal) {
  for (int rank = 0; rank < roles_.processes(); ++rank) {
    if (!ranks_[rank].runs()) continue;
    if (signal == SIGTERM || signal == SIGKILL) ranks_[rank].killed = true;
    hosts_.host_of(rank).signal(rank, signal, /*group=*/true);
    if (signal == SIGTERM)  // a stopped process cannot react
      hosts_.host_of(rank).signal(rank, SIGCONT, /*group=*/true);
  }
}

// A closed terminal and service managers send SIGHUP together with SIGTERM, so only SIGINT and
// SIGTERM count as repeated requests.
void Supervisor::on_signal(int signal) {
  if (signal == SIGTSTP) return suspend();
  if (signal == SIGINT || signal == SIGTERM) ++insisted_;
  if (insisted_ > 2) end_by(signal);  // a rank that cannot be killed, or gRPC, blocks us
  if (insisted_ == 2) return kill_all(SIGKILL);
  if (first_signal_ != 0) return;
  first_signal_ = signal;
  stop_restarting();
  stop_signal_ = stop_signal_for(signal);
  if (coordinator_) coordinator_->request_stop(stop_signal_);
  for (int process = 0; process < roles_.processes(); ++process) {  // the others end with workers
    if (roles_.role_of(process) == Role::Worker && ranks_[process].runs())
      hosts_.host_of(process).signal(process, stop_signal_, /*group=*/false);
  }
  kill_after(options_.stop_grace, SIGKILL);
}

// Ctrl-Z: the ranks are in their own groups, so stop and continue them with this process.
void Supervisor::suspend() {
  kill_all(SIGSTOP);
  raise(SIGSTOP);
  coordinator_->forgive_silence();
  kill_all(SIGCONT);
}

LaunchResult Supervisor::result() const {
  LaunchResult result;
  result.stop_signal = first_signal_;
  result.out_of_time = out_of_time_;
  result.failure = coordinator_->first_failure();
  int stopped = first_signal_ != 0 && num_started_ < roles_.processes() ? 128 + stop_signal_ : 0;
  int by = -1;  // a rank that stopped without being killed by us
  for (int rank = 0; rank < roles_.processes(); ++rank) {
    const Exit exit = ranks_[rank].exit.value_or(Exit{-1, 0});
    result.exit_codes.push_back(exit.code);
    if (roles_.role_of(rank) != Role::Worker || ranks_[rank].leaves || ranks_[rank].ends) continue;
    const bool ours = stop_signal_ != 0 && exit.signal != 0;
    if (!ours && exit.code != 130 && exit.code != 143) continue;
    stopped = ours ? 128 + stop_signal_ : exit.code;
    if (!ranks_[rank].killed) by = rank;
  }
  if (stopped != 0 && (stop_signal_ != 0 || !result.failure)) {
    result.failure.reset();
    result.exit_code = stopped;
    result.last_line = first_signal_ != 0 ? "stopped by " + name_of(first_signal_) + "."
                                          : "stopped, as a rank asked.";
  } else if (result.failure && result.failure->secondary() && by >= 0) {
    result.exit_code = result.exit_codes[by];
    result.last_line = roles_.name_of(by) + " was stopped by " + name_of(result.exit_code - 128) +
                       ", and others lost it: " + result.failure->sentence;
  } else if (result.failure) {
    result.exit_code = result.failure->exit_code;
    result.last_line = result.failure->sentence;
  }
  return result;
}

}  // namespace trireme::inline v0::launch
