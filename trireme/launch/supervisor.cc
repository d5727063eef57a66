#include "trireme/launch/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/launch/secret.h"
#include "trireme/launch/spawn.h"
#include "trireme/net/endpoint.h"
#include "trireme/observe/machine.h"

extern char** environ;

namespace trireme {
inline namespace v0 {
namespace launch {
namespace {

using std::chrono::milliseconds;

// A failure is told at once; the rest of the 2 s is for the others to end by themselves.
constexpr Duration kTermAfter = milliseconds(1000);
constexpr Duration kKillAfter = milliseconds(1600);
// A rank that lost a peer may speak before that peer's end is seen.
constexpr Duration kCauseAfter = milliseconds(300);
// A child of a rank may hold its pipe open.
constexpr Duration kOutputGrace = milliseconds(300);

std::string sentence_of(int rank, const std::string& host, const std::string& what,
                        const Activity& activity, const std::string& advice) {
  std::string text = "rank " + std::to_string(rank) + " on host " + host + " " + what;
  if (activity.step >= 0) text += " at step " + std::to_string(activity.step);
  if (activity.waiting) {
    text += " in " + activity.operation;
  } else if (!activity.last_call.empty()) {
    text += " in user code after " + activity.last_call;
  }
  return text + ". " + advice;
}

std::string advice_for(int signal) {
  switch (signal) {
    case SIGKILL:
      return "If nobody killed it, look in `dmesg` for the out-of-memory killer; resume from the "
             "last checkpoint.";
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
    case SIGABRT:
      return "Run that rank in gdb, or look at its core file.";
    default:
      return "Resume from the last checkpoint.";
  }
}

void pipe_or_throw(int ends[2]) {
  if (pipe2(ends, O_CLOEXEC) == 0) return;
  throw ResourceError(std::string("could not make a pipe: ") + std::strerror(errno),
                      {.operation = "launch", .advice = "Raise the limit on open files."});
}

}  // namespace

Supervisor::Supervisor(const LaunchOptions& options)
    : options_(options), host_(observe::host_name()), ranks_(std::max(options.ranks, 0)) {
  if (options.ranks < 1 || options.command.empty()) {
    throw ConfigError(
        "needs at least one rank and a program",
        {.operation = "launch", .advice = "For example: trireme launch -n 2 -- ./program"});
  }
  find_program(options.command.front());
  if (options.handle_signals) {
    signals_ = std::make_shared<SignalSource>([this](int signal) { on_signal(signal); });
  }
  output_ = std::make_unique<Output>(options);
  secret_ = make_secret(secret_inherited_);
  waiter_ = RealWaiter::make(Duration::zero());
  coordinator_ = std::make_unique<Coordinator>(CoordinatorOptions{
      .size = options.ranks,
      .address = options.listen,
      .secret = secret_,
      .job = std::to_string(getpid()),
      .on_failure =
          [this](const Failure& failure) {
            waiter_->run([this, failure] { on_reported(failure); });
          },
  });
}

Supervisor::~Supervisor() {
  // Only where starting failed half-way is anybody left.
  waiter_->run([this] { kill_all(SIGKILL); });
  waiter_->wait_until([this] { return all_ended(); }, waiter_->now() + std::chrono::seconds(5));
  coordinator_->close();  // its callbacks use the waiter
  waiter_.reset();        // its sources and timers use everything else, the coordinator too
}

// On loopback the ranks inherit a fresh one; elsewhere it must be the user's.
std::string Supervisor::make_secret(bool& inherited) {
  const char* file = std::getenv("TRIREME_JOB_SECRET_FILE");
  inherited = !file || *file == '\0';
  if (!inherited) return read_secret_file(file);
  return net::is_loopback(options_.listen) ? random_bytes(kSecretBytes) : std::string();
}

LaunchResult Supervisor::run() {
  start_all();
  if (options_.time_limit != Duration::max()) {
    waiter_->run_at(waiter_->now() + options_.time_limit, [this] {
      if (all_ended()) return;
      out_of_time_ = true;
      kill_all(SIGKILL);
    });
  }
  waiter_->wait_until([this] { return all_ended(); }, TimePoint::max());
  waiter_->wait_until([this] { return output_finished(); }, waiter_->now() + kOutputGrace);
  LaunchResult last;
  std::atomic<bool> known{false};
  waiter_->run([&] {
    last = result();
    known = true;
    waiter_->wake();
  });
  waiter_->wait_until([&] { return known.load(); }, TimePoint::max());
  return last;
}

void Supervisor::start_all() {
  if (signals_) waiter_->add(signals_);
  const int secret = secret_descriptor(secret_);
  const char* bound = std::getenv("OMP_PROC_BIND");
  const bool bind = !std::getenv("GOMP_CPU_AFFINITY") && !std::getenv("KMP_AFFINITY") &&
                    (!bound || std::string(bound) == "false");
  const CoreShare share =
      share_cores(affinity_cores(), observe::usable_cores().usable, options_.ranks,
                  bind ? options_.bind : Bind::None, numa_nodes());
  for (int rank = 0; rank < options_.ranks; ++rank) start_rank(rank, secret, share);
  close(secret);
}

std::vector<std::string> Supervisor::environment_of(int rank, int secret, int status,
                                                    const CoreShare& share) const {
  std::vector<std::string> result = options_.environment;
  const auto put = [&](const std::string& name, const std::string& value) {
    result.push_back(name + "=" + value);
  };
  put("TRIREME_RANK", std::to_string(rank));
  put("TRIREME_SIZE", std::to_string(options_.ranks));
  put("TRIREME_LOCAL_RANK", std::to_string(rank));
  put("TRIREME_LOCAL_SIZE", std::to_string(options_.ranks));
  put("TRIREME_COORDINATOR", coordinator_->endpoint());
  put("TRIREME_JOB", std::to_string(getpid()));
  put("TRIREME_EPOCH", "0");
  put("TRIREME_SECRET_FD", std::to_string(secret));
  put("TRIREME_STATUS_FD", std::to_string(status));
  put("TRIREME_CORES", std::to_string(share.per_rank));
  put("TRIREME_SHARED_CORES", share.overcommitted ? "1" : "0");
  // Weights and activations on huge pages: matrix products walk rows that are pages apart, and a
  // GPT step is 4-7 % faster. The C library reads this at a process's start only.
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

void Supervisor::start_rank(int rank, int secret, const CoreShare& share) {
  const bool direct =
      options_.rank0_direct && rank == 0 && options_.log_dir.empty() && !options_.on_line;
  int output[2] = {-1, -1}, error[2] = {-1, -1};
  if (!direct) {
    pipe_or_throw(output);
    pipe_or_throw(error);
    add_pipe(rank, false, output[0]);
    add_pipe(rank, true, error[0]);
  }
  const int status = StatusPage::make_descriptor();
  ranks_[rank].status = std::make_unique<StatusPage>(fcntl(status, F_DUPFD_CLOEXEC, 0));
  // A rank in its own process group may not read the terminal; rank 0 may read a pipe or a file.
  const bool reads = rank == 0 && isatty(STDIN_FILENO) == 0;
  const int nothing = reads ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::vector<int> inherit = options_.inherit;
  inherit.insert(inherit.end(), {secret, status});
  const Process process =
      spawn({.command = options_.command,
             .environment = environment_of(rank, secret, status, share),
             .input = nothing,
             .output = output[1],
             .error = error[1],
             .inherit = inherit,
             .cores = share.pinned.empty() ? std::vector<int>{} : share.pinned[rank]});
  for (const int one : {nothing, output[1], error[1], status}) {
    if (one >= 0) close(one);
  }
  guard_.watch(process.pid);
  ranks_[rank].pid = process.pid;
  coordinator_->set_process(rank, process.pid);
  if (options_.on_start) options_.on_start(rank, process.pid);
  add(std::make_shared<ExitSource>(
      process.pid, process.descriptor, [this](pid_t group) { guard_.forget(group); },
      [this, rank](Exit exit) { on_exit(rank, exit); }));
}

void Supervisor::add(std::shared_ptr<DescriptorSource> source) {
  source->when_finished([this, raw = source.get()] { waiter_->remove(raw); });
  waiter_->add(source);
}

void Supervisor::add_pipe(int rank, bool error, int descriptor) {
  auto pipe = std::make_shared<LineSource>(
      descriptor, [this, rank, error](std::string_view line) { output_->line(rank, error, line); });
  pipes_.push_back(pipe);
  add(pipe);
}

void Supervisor::on_exit(int rank, Exit exit) {
  ranks_[rank].exit = exit;
  if (exit.code != 0 && !stopped_as_asked(exit)) {
    const bool by_us = killing_ && (exit.signal == SIGKILL || exit.signal == SIGTERM);
    const Failure failure = failure_of(rank, exit);
    if (!by_us) coordinator_->fail(failure);  // kept only if the rank had not reported itself
    end_all(failure.secondary());
  }
  coordinator_->end(rank);
  if (exit.code != 0 && stopped_as_asked(exit)) kill_after(options_.stop_grace, SIGKILL);
  ranks_[rank].ended = true;
  waiter_->wake();
}

// 130 and 143 are a rank's answer to a stop signal, its own or ours.
bool Supervisor::stopped_as_asked(const Exit& exit) const {
  if (ending_) return false;
  return exit.code == 130 || exit.code == 143 || (stop_signal_ != 0 && exit.signal == stop_signal_);
}

Failure Supervisor::failure_of(int rank, const Exit& exit) const {
  const Activity activity = ranks_[rank].status->read(waiter_->now());
  std::string what, advice;
  if (exit.signal != 0) {
    const char* name = sigabbrev_np(exit.signal);
    what = "was killed by signal " + std::to_string(exit.signal) +
           (name ? " (SIG" + std::string(name) + ")" : "");
    advice = advice_for(exit.signal);
  } else {
    what = "ended with exit code " + std::to_string(exit.code);
    advice = "See its own last lines.";
  }
  std::string sentence = exit.signal == 0 ? ranks_[rank].status->last_words() : std::string();
  if (sentence.empty()) sentence = sentence_of(rank, host_, what, activity, advice);
  return {rank,
          host_,
          activity.step,
          activity.waiting ? activity.operation : activity.last_call,
          std::move(sentence),
          exit.code};
}

void Supervisor::on_reported(const Failure& failure) {
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
  for (const Rank& rank : ranks_) {
    if (rank.pid <= 0 || rank.exit) continue;
    killing_ = true;
    kill(-rank.pid, signal);
    if (signal != SIGKILL) kill(-rank.pid, SIGCONT);  // a stopped one could not react
  }
}

void Supervisor::on_signal(int signal) {
  if (signal == SIGTSTP) return suspend();
  if (stop_signal_ != 0) return kill_all(SIGKILL);
  stop_signal_ = signal == SIGHUP ? SIGTERM : signal;
  coordinator_->request_stop(stop_signal_);
  for (const Rank& rank : ranks_) {
    if (rank.pid > 0 && !rank.exit) kill(rank.pid, stop_signal_);
  }
  kill_after(options_.stop_grace, SIGKILL);
}

// Ctrl-Z: the ranks, which are in groups of their own, stop and go on with us.
void Supervisor::suspend() {
  kill_all(SIGSTOP);
  killing_ = false;
  raise(SIGSTOP);
  coordinator_->forgive_silence();
  kill_all(SIGCONT);
  killing_ = false;
}

bool Supervisor::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.pid < 0 || rank.ended; });
}

bool Supervisor::output_finished() const {
  return std::all_of(pipes_.begin(), pipes_.end(),
                     [](const auto& pipe) { return pipe->finished(); });
}

LaunchResult Supervisor::result() const {
  LaunchResult result;
  result.stop_signal = stop_signal_;
  result.out_of_time = out_of_time_;
  result.failure = coordinator_->first_failure();
  int stopped = 0;
  for (const Rank& rank : ranks_) {
    result.exit_codes.push_back(rank.exit->code);
    if (rank.exit->code == 130 || rank.exit->code == 143) stopped = rank.exit->code;
    if (stop_signal_ != 0 && rank.exit->signal != 0) stopped = 128 + stop_signal_;
  }
  if (stopped != 0 && (stop_signal_ != 0 || !result.failure)) {
    result.failure.reset();
    result.exit_code = stopped;
    result.last_line = stopped == 130      ? "stopped by SIGINT."
                       : stop_signal_ != 0 ? "stopped by SIGTERM."
                                           : "stopped, as a rank asked.";
  } else if (result.failure) {
    result.exit_code = result.failure->exit_code;
    result.last_line = result.failure->sentence;
  }
  return result;
}

LaunchResult launch(const LaunchOptions& options) { return Supervisor(options).run(); }

int run(const LaunchOptions& options) {
  try {
    const LaunchResult result = launch(options);
    if (!result.last_line.empty()) write_all(STDERR_FILENO, "trireme: " + result.last_line + "\n");
    return result.exit_code;
  } catch (...) {
    const ErrorReport report = describe(std::current_exception());
    write_all(STDERR_FILENO, "trireme: " + report.sentence + "\n");
    return report.exit_code;
  }
}

}  // namespace launch
}  // namespace v0
}  // namespace trireme
