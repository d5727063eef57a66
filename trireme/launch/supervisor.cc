#include "trireme/launch/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/standard_streams.h"
#include "trireme/launch/rank_end.h"
#include "trireme/net/endpoint.h"
#include "trireme/observe/machine.h"
#include "trireme/rendezvous/secret.h"

extern char** environ;

namespace trireme::inline v0::launch {
namespace {

// A failure is announced at once. The other ranks have the rest of the 2 s to end by themselves.
constexpr Duration kTermAfter = std::chrono::milliseconds(1000);
constexpr Duration kKillAfter = std::chrono::milliseconds(1600);
// A rank that lost a peer may report it before that peer's end is seen.
constexpr Duration kCauseAfter = std::chrono::milliseconds(300);
// A child process of a rank may keep its pipe open.
constexpr Duration kOutputGrace = std::chrono::milliseconds(300);

struct Pipe {
  net::Descriptor out, in;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) == 0) return {net::Descriptor(ends[0]), net::Descriptor(ends[1])};
  throw ResourceError(std::string("could not make a pipe: ") + std::strerror(errno),
                      {.operation = "launch", .advice = "Raise the limit on open files."});
}

net::Descriptor copy_of(int descriptor) {
  net::Descriptor copy(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!copy) net::throw_system_error("dup");
  return copy;
}

net::Descriptor empty_input() {
  net::Descriptor file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!file) net::throw_system_error("opening /dev/null");
  return file;
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
      secret_(make_secret()),
      restarts_left_(options.restarts),
      ranks_(static_cast<std::size_t>(std::max(roles_.processes(), 0))) {
  if (options.ranks < 1 || options.servers < 0 || options.command.empty()) {
    throw ConfigError(
        "needs at least one rank and a program",
        {.operation = "launch", .advice = "For example: trireme launch -n 2 -- ./program"});
  }
  find_program(options.command.front());
  outlive_readers();
  output_ = std::make_unique<Output>(options);
  if (options.handle_signals) blocked_.emplace();
  waiter_ = RealWaiter::make(Duration::zero());
  if (blocked_) {  // at once, so that signals are handled during everything below
    signals_ = std::make_shared<SignalSource>(*blocked_, [this](int one) { on_signal(one); });
    output_->give_up_at(signals_->descriptor());
    waiter_->add(signals_);
  }
  auto coordinator = std::make_unique<rendezvous::Coordinator>(rendezvous::CoordinatorOptions{
      .size = options.ranks,
      .servers = options.servers,
      .evaluator = options.evaluator,
      .address = options.listen,
      .secret = secret_,
      .job = std::to_string(getpid()),
      .on_failure =
          [this](const rendezvous::Failure& failure) {
            waiter_->run([this, failure] { on_reported(failure); });
          },
      .on_server_lost =
          [this](int server) { waiter_->run([this, server] { end_server(server); }); },
      .on_new_copy =
          [this](int shard, int server) {
            waiter_->run([this, shard, server] { report_copy(shard, server); });
          },
  });
  in_context([&] { coordinator_ = std::move(coordinator); });
}

Supervisor::~Supervisor() {
  // Ranks are left only if starting has failed half-way.
  waiter_->run([this] { kill_all(SIGKILL); });
  waiter_->wait_until([this] { return all_ended(); }, waiter_->now() + std::chrono::seconds(5));
  if (signals_) waiter_->remove(signals_.get());
  blocked_.reset();       // from here on a signal ends this process
  coordinator_->close();  // its callbacks use the waiter
  waiter_.reset();        // its sources and timers use all other members
}

// On loopback the ranks inherit a new secret; otherwise the user must provide one.
std::string Supervisor::make_secret() const {
  const char* file = std::getenv("TRIREME_JOB_SECRET_FILE");
  if (file && *file != '\0') return rendezvous::read_secret_file(file);
  return net::is_loopback(options_.listen) ? rendezvous::random_bytes(rendezvous::kSecretBytes)
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
      kill_all(SIGKILL);
    });
  }
  secret_file_ = net::Descriptor(rendezvous::secret_descriptor(secret_));
  share_ = share_of_cores();
  starting_ = true;
  const auto starter = std::make_shared<Starter>(*this);
  waiter_->add(starter);
  waiter_->wait_until([this] { return all_ended(); }, TimePoint::max());
  waiter_->remove(starter.get());
  waiter_->wait_until([this] { return output_finished(); }, waiter_->now() + kOutputGrace);
  LaunchResult last;
  in_context([&] {
    if (!start_error_) last = result();
  });
  if (start_error_) std::rethrow_exception(start_error_);
  return last;
}

CoreShare Supervisor::share_of_cores() const {
  const char* bound = std::getenv("OMP_PROC_BIND");
  const bool bind = !std::getenv("GOMP_CPU_AFFINITY") && !std::getenv("KMP_AFFINITY") &&
                    (!bound || std::string(bound) == "false");
  return share_cores(affinity_cores(), observe::usable_cores().usable, roles_.processes(),
                     bind ? options_.bind : Bind::None, numa_nodes());
}

bool Supervisor::start_next() {
  if (!starting_) return false;
  const bool more = !ending_ && !out_of_time_ && first_signal_ == 0;
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

std::vector<std::string> Supervisor::environment_of(int process, int status) const {
  std::vector<std::string> result = options_.environment;
  const auto put = [&](const std::string& name, const std::string& value) {
    result.push_back(name + "=" + value);
  };
  const Role role = roles_.role_of(process);
  const std::string number = std::to_string(process - roles_.first(role));
  const std::string count = std::to_string(roles_.count(role));
  put("TRIREME_RANK", number);
  put("TRIREME_SIZE", count);
  put("TRIREME_LOCAL_RANK", number);
  put("TRIREME_LOCAL_SIZE", count);
  put("TRIREME_ROLE", role == Role::Server      ? "server"
                      : role == Role::Evaluator ? "evaluator"
                                                : "worker");
  put("TRIREME_WORKERS", std::to_string(roles_.workers));
  put("TRIREME_SERVERS", std::to_string(roles_.servers));
  put("TRIREME_EVALUATOR", roles_.evaluator ? "1" : "0");
  put("TRIREME_COORDINATOR", coordinator_->endpoint());
  put("TRIREME_JOB", std::to_string(getpid()));
  put("TRIREME_EPOCH", "0");
  put("TRIREME_RESTARTS", std::to_string(ranks_[static_cast<std::size_t>(process)].restarts));
  put("TRIREME_SECRET_FD", std::to_string(secret_file_.get()));
  put("TRIREME_STATUS_FD", std::to_string(status));
  put("TRIREME_CORES", std::to_string(share_.per_rank));
  put("TRIREME_SHARED_CORES", share_.overcommitted ? "1" : "0");
  // Puts weights and activations on huge pages: matrix products access rows that are pages apart,
  // and a GPT step is 4-7 % faster. The C library reads this only when a process starts.
  if (std::getenv("GLIBC_TUNABLES") == nullptr) put("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
  for (char** variable = environ; *variable; ++variable) {
    const std::string text = *variable;
    const std::string name = text.substr(0, text.find('=') + 1);
    const bool ours = std::any_of(result.begin(), result.end(), [&](const std::string& one) {
      return one.compare(0, name.size(), name) == 0;
    });
    if (!ours) result.push_back(text);
  }
  return result;
}

void Supervisor::start_rank(int rank) {
  const bool direct =
      options_.rank0_direct && rank == 0 && options_.log_dir.empty() && !options_.on_line;
  Pipe output, error;
  if (!direct) {
    output = make_pipe();
    error = make_pipe();
    add_pipe(rank, false, std::move(output.out));
    add_pipe(rank, true, std::move(error.out));
  }
  const net::Descriptor status(rendezvous::StatusPage::make_descriptor());
  ranks_[rank].status = std::make_unique<rendezvous::StatusPage>(copy_of(status.get()).release());
  // A rank in its own process group may not read the terminal; rank 0 may read from a pipe or file.
  const bool reads = rank == 0 && isatty(STDIN_FILENO) == 0;
  const net::Descriptor nothing = reads ? net::Descriptor() : empty_input();
  std::vector<int> inherit = options_.inherit;
  inherit.insert(inherit.end(), {secret_file_.get(), status.get()});
  const Process process =
      spawn({.command = options_.command,
             .environment = environment_of(rank, status.get()),
             .input = nothing.get(),
             .output = output.in.get(),
             .error = error.in.get(),
             .inherit = inherit,
             .cores = share_.pinned.empty() ? std::vector<int>{} : share_.pinned[rank]});
  supervise(rank, process);
}

void Supervisor::supervise(int rank, const Process& process) {
  guard_.watch(process.pid);
  ranks_[rank].pid = process.pid;
  ++running_;
  coordinator_->set_process(rank, process.pid);
  if (options_.on_start) options_.on_start(rank, process.pid);
  try {
    add(std::make_shared<ExitSource>(
        process.pid, process.descriptor, [this](pid_t group) { guard_.forget(group); },
        [this, rank](Exit exit) { on_exit(rank, exit); }));
  } catch (...) {  // without the source its end would not be noticed
    kill(-process.pid, SIGKILL);
    guard_.forget(process.pid);
    waitpid(process.pid, nullptr, 0);
    ranks_[rank].pid = -1;
    --running_;
    throw;
  }
}

void Supervisor::add(std::shared_ptr<DescriptorSource> source) {
  source->when_finished([this, raw = source.get()] { waiter_->remove(raw); });
  waiter_->add(source);
}

void Supervisor::add_pipe(int rank, bool error, net::Descriptor end) {
  auto pipe = std::make_shared<LineSource>(
      end.release(),
      [this, rank, error](std::string_view line) { output_->line(rank, error, line); });
  pipes_.push_back(pipe);
  add(pipe);
}

void Supervisor::on_reported(const rendezvous::Failure& failure) {
  if (failure.exit_code == 130 || failure.exit_code == 143) return;
  end_all(failure.secondary());
}

void Supervisor::end_all(bool secondary) {
  if (ending_) return;
  if (secondary && !coordinator_->first_failure().has_value()) return;
  ending_ = true;
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
  for (Rank& rank : ranks_) {
    if (rank.pid <= 0 || rank.exit) continue;
    if (signal == SIGTERM || signal == SIGKILL) rank.killed = true;
    kill(-rank.pid, signal);
    if (signal != SIGKILL) kill(-rank.pid, SIGCONT);  // a stopped process cannot react
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
  stop_signal_ = stop_signal_for(signal);
  if (coordinator_) coordinator_->request_stop(stop_signal_);
  for (int process = 0; process < roles_.workers; ++process) {  // the others end with them
    const Rank& rank = ranks_[static_cast<std::size_t>(process)];
    if (rank.pid > 0 && !rank.exit) kill(rank.pid, stop_signal_);
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

bool Supervisor::output_finished() const {
  return std::all_of(pipes_.begin(), pipes_.end(),
                     [](const auto& pipe) { return pipe->finished(); });
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
    if (rank >= roles_.workers) continue;  // they end as the workers do
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
