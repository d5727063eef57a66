#include "trireme/job/job.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/comm/choice/choice.h"
#include "trireme/comm/nccl/gpu_group.h"
#include "trireme/job/gpu_choice.h"
#include "trireme/job/job_impl.h"
#include "trireme/job/options.h"
#include "trireme/job/peer_watches.h"
#include "trireme/job/stop_signal.h"
#include "trireme/kernel/assignment.h"
#include "trireme/net/alone_transport.h"
#include "trireme/net/channel.h"
#include "trireme/net/connect.h"
#include "trireme/net/endpoint.h"
#include "trireme/observe/log.h"
#include "trireme/observe/machine.h"
#include "trireme/rendezvous/own_address.h"
#include "trireme/rendezvous/secret.h"

namespace trireme::inline v0 {
namespace {

constexpr std::uint32_t kServerPurpose = 0x5053;  // "PS"
constexpr std::size_t kLargestServerFrame = std::size_t{1} << 40;

std::string secret_of(const rendezvous::RankEnvironment& env) {
  if (env.secret_descriptor >= 0) return rendezvous::read_secret_descriptor(env.secret_descriptor);
  if (!env.secret_file.empty()) return rendezvous::read_secret_file(env.secret_file);
  throw RefusedError(
      ExitCode::Unauthenticated, "this rank was given no job secret",
      {.rank = env.rank,
       .operation = "join",
       .advice = "Start ranks by `trireme launch`, or set TRIREME_JOB_SECRET_FILE."});
}

// Ranks that share cores must not spin: a spinning rank keeps the awaited one from running.
Duration spin_of(const rendezvous::RankEnvironment& env) {
  return env.shared_cores ? Duration::zero() : std::chrono::microseconds(20);
}

// Only `trireme train` starts the coordinator of an elastic TFJob.
void check_coordinator(const rendezvous::RankEnvironment& env) {
  if (!env.starts_coordinator()) return;
  throw ConfigError(
      "this process is ps 0 of an elastic TFJob, whose coordinator only `trireme train` starts",
      {.operation = "join",
       .advice = "Run `trireme coordinator` beside it, and set TRIREME_COORDINATOR in all pods."});
}

[[noreturn]] void refuse_end(int rank) {
  throw ConfigError(
      "the Job ends before a DataParallel or Strategy that uses it",
      {.rank = rank,
       .operation = "job",
       .advice = "Make the Job first and end it last: what is declared later ends earlier."});
}

}  // namespace

Job::Impl::Impl(JobOptions given, MpiComm communicator)
    : env(rendezvous::resolve_environment()),
      host(env.host.empty() ? observe::host_name() : env.host),
      status(env.status_descriptor) {
  job::set_reporter(reporter(nullptr));
  try {
    options = job::resolve_options(std::move(given));
    if (options.reproducible) comm::nccl::fix_cublas_order();
    cores = job::resolve_cores(env);
    env.shared_cores = job::share_cores(env);
    process = env.process();
    waiter = RealWaiter::make(spin_of(env));
    if (communicator.address || !env.launcher.empty()) meet(communicator);
    env.coordinator.empty() ? be_alone() : join();
  } catch (...) {
    // The launcher's last line. The process ends by the exception, or continues without a Job.
    const rendezvous::Failure failure = job::failure_from(std::current_exception());
    status.set_last_words(failure.sentence);
    if (client) {
      client->report(failure);
      job::await_cause(failure);
    }
    job::clear_reporter();  // `status` is about to be destroyed; leave() clears after set-up only
    leave(exit_code(/*by_exception=*/true));
    throw;
  }
}

Job::Impl::Impl(std::shared_ptr<net::Transport> transport, JobOptions given,
                std::shared_ptr<const plan::Tuning> measured)
    : status(-1), options(std::move(given)), tuning(std::move(measured)) {
  env.rank = transport->rank();
  env.size = transport->size();
  std::vector<int> all(static_cast<std::size_t>(env.size));
  std::iota(all.begin(), all.end(), 0);
  form_simulated(std::move(transport), all);
}

// Servers tell where they listen: at unix sockets, which share memory, if all are on one host. A
// server that replaces another one does as the others do. The evaluator takes no part, so nobody
// waits for it.
void Job::Impl::open_server() {
  const auto listen = [&](bool one_host) {
    if (env.role == Role::Server)
      servers.listen(one_host ? "" : rendezvous::own_address(env.coordinator, options.interface));
  };
  if (env.elastic || env.on_its_own) return meet_servers();
  if (env.joins_later()) {
    servers.adopt(client->server_view(options.timeout));
    const auto& others = servers.view()->servers;
    return listen(std::any_of(others.begin(), others.end(),
                              [](const auto& one) { return one.address.starts_with("unix"); }));
  }
  const std::vector<std::string> all = exchange("all hosts", host, /*served=*/true);
  listen(std::all_of(all.begin(), all.end(), [&](const std::string& one) { return one == host; }));
  exchange("servers listen", "", /*served=*/true);
  servers.adopt(client->server_view(options.timeout));
}

// Workers come at any time, so each process waits for the servers only. Their launcher, or else the
// coordinator's address, tells them whether there are several hosts.
void Job::Impl::meet_servers() {
  if (env.role == Role::Server) {
    const auto coordinator = net::parse_endpoint(env.coordinator);
    const bool one_host = env.host.empty() && coordinator && net::is_loopback(coordinator->host);
    return servers.listen(one_host ? ""
                                   : rendezvous::own_address(env.coordinator, options.interface));
  }
  servers.adopt(client->server_view(options.timeout));
  const auto there = [this] {  // before the first one has come there is no view
    const auto view = servers.view();
    return static_cast<int>(view->servers.size()) == env.servers && view->complete();
  };
  if (!waiter->wait_until([&] { return there() || groups.failure() || training_ended; },
                          waiter->now() + options.timeout_user_code))
    throw TimeoutError(
        "not all of the " + std::to_string(env.servers) + " parameter servers have come within " +
            std::to_string(
                std::chrono::duration_cast<std::chrono::seconds>(options.timeout_user_code)
                    .count()) +
            " s",
        {.rank = env.rank,
         .host = host,
         .operation = "join",
         .advice = "See the servers' own last lines."});
  if (const std::exception_ptr failed = groups.failure()) std::rethrow_exception(failed);
}

net::ChannelOptions Job::Impl::channel_options() const {
  net::ChannelOptions result;
  result.secret = secret;
  result.identity = {.rank = env.rank, .purpose = kServerPurpose};
  result.max_frame_bytes = kLargestServerFrame;
  result.timeout = options.timeout;
  return result;
}

void Job::Impl::be_alone() {
  hosts = {host};
  take_gpu();
  set_up_groups(std::make_shared<net::AloneTransport>(waiter), world_options());
}

Job::Impl::~Impl() { leave(exit_code(std::uncaught_exceptions() > 0)); }

// Call it before any member is destroyed: the threads below use them.
void Job::Impl::leave(int code) {
  if (waiter) job::clear_reporter();
  if (client) client->stop_watching();
  heartbeat.reset();
  groups.drop();
  if (client) client->leave(code);
  if (meeting) meeting->stay(*waiter, options.timeout);
  if (start) start->stay(*waiter, options.timeout, options.timeout_user_code);
}

// The code for the coordinator, which may not see the process's own.
int Job::Impl::exit_code(bool by_exception) const noexcept {
  if (changes.agreed_stop() != 0) return changes.agreed_stop();
  return by_exception ? 1 : 0;
}

bool Job::Impl::rank_0_coordinates() const noexcept { return meeting || start; }

void Job::Impl::meet(MpiComm communicator) {
  if (env.meeting && !communicator.address) {
    // Nobody waits for the evaluator, so it may start early.
    const Duration patience =
        env.role == Role::Evaluator ? options.timeout_user_code : options.timeout;
    start = std::make_unique<rendezvous::SocketMeeting>(env, waiter, patience, options.interface);
    secret = start->secret();
    return;
  }
  meeting = std::make_unique<rendezvous::MpiMeeting>(communicator.address, env, host, *waiter,
                                                     options.timeout_user_code, options.interface);
  secret = meeting->secret();
}

job::Reporter Job::Impl::reporter(rendezvous::CoordinatorClient* to) {
  const rendezvous::Roles roles = env.roles();
  return {env.process(),
          roles.processes(),
          roles.name_of(env.process()),
          host,
          to,
          &status,
          to != nullptr && rank_0_coordinates()};
}

void Job::Impl::join() {
  check_coordinator(env);
  if (!rank_0_coordinates()) secret = secret_of(env);
  client = std::make_unique<rendezvous::CoordinatorClient>(
      rendezvous::ClientOptions{.endpoint = env.coordinator,
                                .secret = secret,
                                .job = env.job,
                                .rank = env.process(),
                                .host = host,
                                .identity = env.role == Role::Worker ? options.identity : "",
                                .timeout = options.timeout});
  job::set_reporter(reporter(client.get()));
  servers.open(waiter, client.get(), channel_options(), env.role == Role::Server);
  if (env.elastic && env.role == Role::Worker)
    changes.open(
        process, waiter, [this] { enter_next_epoch(); }, [this] { break_epoch(); });
  client->watch([this](const rendezvous::News& news) { on_news(news); });
  status.set_wait("join", true, steady_now());
  heartbeat = std::make_unique<rendezvous::Heartbeat>(*client, status, options.timeout);
  if (env.servers > 0 && env.role != Role::Evaluator) open_server();
  changes.elastic() ? enter_next_epoch() : form();
  status.set_wait("join", false, steady_now());
}

void Job::Impl::form() {
  // A worker that comes later trains on its own.
  const bool meets = env.role == Role::Worker && !env.joins_later();
  hosts = meets ? exchange("hosts", host) : std::vector{host};
  if (meets) check_size();
  places = rendezvous::places_of(hosts, meets ? env.rank : 0);
  if (!meets) {
    if (env.role == Role::Worker) places.local_rank = env.local_rank;  // others have other devices
    return be_alone();
  }
  take_gpu();
  // All ranks use rank 0's table, because they must choose alike.
  tuning = comm::parse_tuning(
      exchange("tuning", env.rank == 0 ? comm::read_tuning_file() : std::string()).front());
  const std::shared_ptr<net::Transport> transport = connect();
  status.set_transport(transport);
  set_up_groups(transport, world_options());
}

void Job::Impl::set_up_groups(std::shared_ptr<net::Transport> transport,
                              comm::CommunicatorOptions of_world) {
  groups.set_world(std::make_shared<comm::Communicator>(std::move(transport), std::move(of_world)));
  break_epoch();
  input.set_ranks(env.size);
  groups.split(places);
}

void Job::Impl::check_size() const {
  if (static_cast<int>(hosts.size()) == env.size) return;
  throw ConfigError("TRIREME_SIZE says " + std::to_string(env.size) + " ranks, the coordinator " +
                        std::to_string(hosts.size()),
                    {.rank = env.rank,
                     .operation = "join",
                     .advice = "Start ranks by `trireme launch`, which sets both."});
}

// Every rank gets the reports of all, so all refuse with the same reason. Servers need no GPU.
void Job::Impl::take_gpu() {
  if (options.transport != "nccl" || env.role == Role::Server) return;
  job::GpuChoice choice = job::choose_gpu(places.local_rank);
  const std::string mine = job::text_of(choice.report);
  std::vector<job::GpuReport> reports;
  for (const std::string& text : hosts.size() > 1 ? exchange("gpus", mine) : std::vector{mine}) {
    reports.push_back(job::parse_gpu_report(text));
  }
  job::check_gpus(hosts, reports, env.rank);
  gpu = std::move(choice.gpu);
}

comm::CommunicatorOptions Job::Impl::world_options() {
  comm::CommunicatorOptions result;
  result.algorithm = env.role == Role::Server ? "auto" : options.algorithm;  // it is alone
  result.timeout = options.timeout;
  result.epoch = changes.epoch().number;
  result.host_of_rank = hosts.empty() ? std::vector<std::string>{host} : hosts;
  result.reproducible = options.reproducible;
  result.trace = options.trace;
  result.tuning = tuning;
  result.device = comm::nccl::backend_on(gpu);
  if (client) {
    result.watch = std::make_shared<job::MembershipWatch>(
        *client, status,
        rendezvous::JudgeOptions{own_number(), options.timeout, options.timeout_user_code});
    result.on_stall = [](std::string_view) {};  // the watch prints one line per job
  }
  return result;
}

comm::CommunicatorOptions Job::Impl::simulated_options() {
  comm::CommunicatorOptions result = world_options();
  result.watch = std::make_shared<job::PatientWatch>(options.timeout_user_code);
  result.on_stall = [](std::string_view) {};
  return result;
}

// A rank that still loads its libraries is waited for like a rank in user code.
std::vector<std::string> Job::Impl::exchange(const std::string& key, const std::string& mine,
                                             bool served) {
  job::MembershipWatch watch(*client, status,
                             {own_number(), options.timeout, options.timeout_user_code});
  const rendezvous::Roles roles = env.roles();
  const rendezvous::Epoch epoch = changes.epoch();
  const rendezvous::CoordinatorClient::Group group =
      changes.elastic()
          ? rendezvous::CoordinatorClient::Group{.members = epoch.members, .epoch = epoch.number}
      : served ? rendezvous::CoordinatorClient::Group{0, roles.workers + roles.servers}
               : rendezvous::CoordinatorClient::Group{roles.first(env.role), env.size};
  const auto notice = start ? start->wait_for_all(env) : nullptr;
  const TimePoint begun = waiter->now();
  for (;;) {
    try {
      return client->exchange(key, mine, options.timeout, group);
    } catch (const TimeoutError&) {
      const auto verdict = watch.ask("join", waiter->now() - begun);
      if (verdict.keep_waiting) continue;
      ErrorContext context{.rank = env.rank, .host = host, .operation = "join"};
      context.peer = verdict.lost_rank;
      throw TimeoutError("the ranks did not come together: " + verdict.explanation,
                         std::move(context));
    }
  }
}

std::shared_ptr<net::Transport> Job::Impl::connect() {
  if (env.size == 1) return std::make_shared<net::AloneTransport>(waiter);
  net::ConnectOptions connect_options{
      .rank = env.rank,
      .size = env.size,
      .secret = secret,
      .host = rendezvous::own_address(env.coordinator, options.interface),
      .epoch = changes.epoch().number,
      .timeout = options.timeout,
      .sockets = options.sockets,
      .rate = options.rate};
  if (changes.elastic()) connect_options.cancelled = [this] { return changes.is_over(); };
  int calls = 0;  // all ranks call in the same order
  const net::Exchange gather = [&](const std::string& mine) {
    return exchange("connect " + std::to_string(calls++), mine);
  };
  std::string chosen = options.transport;
  if (chosen == "auto" || chosen == "nccl") chosen = places.num_hosts > 1 ? "mixed" : "shm";
  job::check_mpi(chosen, meeting != nullptr, env.rank);
  net::Connect over_mpi = nullptr;
  if (meeting) over_mpi = [this](auto&&...) { return meeting->connect(waiter); };
  return net::connect(chosen, {waiter, connect_options, gather, hosts, over_mpi});
}

void Job::Impl::on_news(const rendezvous::News& news) {
  using Kind = rendezvous::News::Kind;
  if (news.kind == Kind::Stop) {
    job::note_stop_signal(news.stop_signal);
    return changes.stop();
  }
  if (news.kind == Kind::Finished) {
    (env.on_its_own && env.role == Role::Worker ? training_ended : finished) = true;
    if (changes.elastic()) changes.end();
    return waiter->wake();
  }
  if (news.kind == Kind::Servers) return servers.adopt(news.servers);
  if (news.kind == Kind::Epoch) {
    if (changes.elastic()) changes.adopt(news.epoch);  // servers and the evaluator are in no epoch
    return;
  }
  if (news.kind == Kind::CoordinatorAway || news.kind == Kind::CoordinatorBack) {
    const bool away = news.kind == Kind::CoordinatorAway;
    if (changes.elastic()) changes.set_away(away);
    if (env.rank == 0)
      observe::warning(away ? "the coordinator at " + env.coordinator + " " + news.reason +
                                  "; the ranks go on and wait for its return"
                            : "the coordinator is back");
    return;
  }
  if (news.kind == Kind::Left) return;  // its closed sockets tell the ranks that still wait for it
  if (news.kind == Kind::Failure && news.failure.rank == process) return;
  const std::exception_ptr error = error_of(news);
  if (!finished.exchange(true)) servers.fail(error);
  waiter->wake();
  groups.fail(error);
  if (changes.elastic()) changes.end(news.kind == Kind::CoordinatorLost ? error : nullptr);
}

std::exception_ptr Job::Impl::error_of(const rendezvous::News& news) {
  ErrorContext context{.rank = env.rank, .host = host};
  if (news.kind == rendezvous::News::Kind::Failure) {
    job::note_first_failure(news.failure);
    context.peer = news.failure.rank;
    context.operation = status.read(steady_now()).operation;
    return std::make_exception_ptr(
        PeerLost("the job has failed: " + news.failure.sentence, std::move(context)));
  }
  std::string what = "the coordinator is lost";
  if (!news.reason.empty()) {
    what = news.reason;
    context.advice = "Start this process again: it joins the job anew.";
  } else if (rank_0_coordinates()) {
    what = "rank 0, which keeps the coordinator, is gone";
    context.peer = 0;
    context.advice = "See what its launcher says of it; resume from the last checkpoint.";
  } else {
    context.advice = "The launcher has ended; resume from the last checkpoint.";
  }
  return std::make_exception_ptr(
      PeerLost(ExitCode::CoordinatorLost, std::move(what), std::move(context)));
}

Job::Job(int, char**, JobOptions options) {
  job::prepare_process();
  impl_ = std::make_unique<Impl>(std::move(options), MpiComm{});
}
Job::Job(MpiComm communicator, JobOptions options) {
  job::prepare_process();
  impl_ = std::make_unique<Impl>(std::move(options), communicator);
}
Job::Job(std::shared_ptr<net::Transport> transport, JobOptions options,
         std::shared_ptr<const plan::Tuning> tuning)
    : impl_(std::make_unique<Impl>(std::move(transport), std::move(options), std::move(tuning))) {}
Job::Job(SimulatedProcess process, JobOptions options)
    : impl_(std::make_unique<Impl>(std::move(process), std::move(options))) {}
// If a strategy still uses the Job: ends the program by the terminate handler, since a destructor
// cannot throw; or, if an exception passes, whose message matters more, leaves the job and keeps
// what the strategy's destructor uses. In a child of fork() it ends nothing: the parent still uses
// the connections.
Job::~Job() {
  const bool forked = getpid() != impl_->creator;
  if (!forked && !impl_->input.has_strategy()) return;
  if (!forked && std::uncaught_exceptions() == 0) refuse_end(impl_->env.rank);
  if (!forked) impl_->leave(impl_->exit_code(/*by_exception=*/true));
  static auto* const kept = new std::vector<std::unique_ptr<Impl>>;  // reachable, so no leak
  kept->push_back(std::move(impl_));
}

int Job::rank() const noexcept { return impl_->env.rank; }
int Job::size() const noexcept { return impl_->env.size; }
int Job::local_rank() const noexcept { return impl_->places.local_rank; }
int Job::local_size() const noexcept { return impl_->places.local_size; }
int Job::host_rank() const noexcept { return impl_->places.host_rank; }
int Job::num_hosts() const noexcept { return impl_->places.num_hosts; }
const std::string& Job::host_name() const noexcept { return impl_->host; }
Device Job::device() const noexcept {
  return impl_->gpu ? Device{DeviceKind::Cuda, impl_->gpu->index()} : Device{};
}
Role Job::role() const noexcept { return impl_->env.chief ? Role::Chief : impl_->env.role; }
rendezvous::Roles Job::roles() const { return impl_->env.roles(); }
bool Job::joined_later() const noexcept { return impl_->env.joins_later(); }
bool Job::finished() const noexcept { return impl_->finished; }
bool Job::training_ended() const noexcept { return impl_->training_ended; }
JobServers& Job::servers() const { return impl_->servers; }
JobChanges& Job::changes() const { return impl_->changes; }
int Job::cores() const noexcept { return impl_->cores; }
const JobOptions& Job::options() const noexcept { return impl_->options; }
comm::Communicator& Job::world() const { return impl_->groups.world(); }
comm::Communicator& Job::host() const { return impl_->groups.host(); }
comm::Communicator& Job::across() const { return impl_->groups.across(); }
std::shared_ptr<Waiter> Job::waiter() const {
  return impl_->simulated.waiter ? impl_->simulated.waiter : world().waiter();
}
int Job::stop_signal() const noexcept {
  if (const int signal = job::stop_signal(); signal != 0) return signal;
  return impl_->changes.due_at_step_end() ? kRanksChange : 0;
}
void Job::activity(std::string_view what) noexcept {
  impl_->status.set_activity(what, steady_now());
}
void Job::set_step(long step) noexcept { impl_->status.set_step(step); }

JobInput& Job::input() const { return impl_->input; }

}  // namespace trireme::inline v0
