#include "trireme/cli/torch/beside_coordinator.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/descriptor.h"
#include "trireme/base/error.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/cli/light.h"
#include "trireme/launch/hosts/sources.h"
#include "trireme/launch/hosts/spawn.h"
#include "trireme/launch/output.h"
#include "trireme/net/endpoint.h"
#include "trireme/rendezvous/coordinator/coordinator.h"
#include "trireme/rendezvous/coordinator/door.h"

namespace trireme::inline v0::cli {
namespace {

// When one of the two has ended, the other one has this long. A coordinator takes leave of the
// job's processes for 5 s.
constexpr Duration kPartingTime = std::chrono::seconds(20);
constexpr Duration kSoonEnded = std::chrono::seconds(2);
constexpr int kMostSoonEnded = 5;

// A process that ends with this object.
class ChildProcess {
 public:
  /// `output`: a descriptor for its standard output; -1: this process's.
  ChildProcess(std::vector<std::string> command, int output)
      : command_(std::move(command)), output_(output) {}
  ~ChildProcess() { end(); }
  ChildProcess(const ChildProcess&) = delete;

  void start() {
    const launch::Process process = launch::spawn(
        {.command = command_, .environment = launch::own_environment(), .output = output_});
    pid_ = process.pid;
    descriptor_ = Descriptor(process.descriptor);
    started_ = steady_now();
  }
  bool runs() const { return pid_ > 0; }
  TimePoint started() const { return started_; }
  /// Readable when it has ended; -1 if it does not run.
  int descriptor() const { return runs() ? descriptor_.get() : -1; }
  void send(int signal) const {
    if (runs()) kill(pid_, signal);
  }
  /// nullopt if it has not ended since the last call.
  std::optional<launch::Exit> take_end() {
    siginfo_t info{};
    if (!runs() ||
        waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
      return std::nullopt;
    return reap();
  }
  void end() {
    send(SIGKILL);
    if (runs()) reap();
  }

 private:
  // Kills the rest of its group first, whose number can be reused from then on.
  launch::Exit reap() {
    kill(-pid_, SIGKILL);
    return launch::await_end(std::exchange(pid_, -1));
  }

  const std::vector<std::string> command_;
  const int output_;
  pid_t pid_ = -1;
  Descriptor descriptor_;
  TimePoint started_{};
};

// The coordinator and the server.
class ServedPair {
 public:
  ServedPair(std::vector<std::string> coordinator, bool kept, std::vector<std::string> server)
      : signals_(signalfd(-1, &blocked_.which(), SFD_CLOEXEC | SFD_NONBLOCK)),
        kept_(kept),
        coordinator_(std::move(coordinator), STDERR_FILENO),
        server_(std::move(server), -1) {
    if (!signals_)
      throw ResourceError("signalfd failed",
                          {.operation = "train", .advice = "Raise the limit on open files."});
  }
  int run();

 private:
  void await();
  void pass_on() const;
  bool starts_again(const launch::Exit& end);
  void wait_for_other(Duration time) { give_up_ = std::min(give_up_, steady_now() + time); }
  bool ended_soon() const { return steady_now() - coordinator_.started() < kSoonEnded; }
  int exit_code() const;

  const launch::BlockedSignals blocked_{SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  const Descriptor signals_;
  const bool kept_;
  ChildProcess coordinator_, server_;
  std::optional<launch::Exit> coordinator_end_, server_end_;
  TimePoint give_up_ = TimePoint::max();
  int soon_ = 0;  // times in a row that the coordinator was killed soon after its start
};

int ServedPair::run() {
  coordinator_.start();
  server_.start();
  while ((coordinator_.runs() || server_.runs()) && steady_now() < give_up_) {
    await();
    pass_on();
    if (const auto end = server_.take_end()) {
      server_end_ = end;
      wait_for_other(kPartingTime);
    }
    if (const auto end = coordinator_.take_end(); end && !starts_again(*end)) {
      coordinator_end_ = end;  // if it ended soon, it has served nobody
      wait_for_other(end->signal == 0 && ended_soon() ? Duration::zero() : kPartingTime);
    }
  }
  return exit_code();
}

void ServedPair::await() {
  pollfd all[] = {{signals_.get(), POLLIN, 0},
                  {coordinator_.descriptor(), POLLIN, 0},
                  {server_.descriptor(), POLLIN, 0}};
  using std::chrono::milliseconds;
  const int limit = give_up_ == TimePoint::max()
                        ? -1
                        : static_cast<int>(std::chrono::ceil<milliseconds>(
                                               std::max(give_up_ - steady_now(), Duration::zero()))
                                               .count());
  ::poll(all, std::size(all), limit);
}

void ServedPair::pass_on() const {
  signalfd_siginfo got{};
  while (read(signals_.get(), &got, sizeof got) == sizeof got)
    server_.send(static_cast<int>(got.ssi_signo));
}

// A coordinator that ends by itself has ended the job, or said what is wrong.
bool ServedPair::starts_again(const launch::Exit& end) {
  if (end.signal == 0 || !kept_ || !server_.runs()) return false;
  soon_ = ended_soon() ? soon_ + 1 : 0;
  if (soon_ == kMostSoonEnded) return false;
  launch::say("the coordinator was killed by signal " + std::to_string(end.signal) +
              ". It is started again; the ranks go on meanwhile.");
  coordinator_.start();
  return true;
}

int ServedPair::exit_code() const {
  if (server_end_ && server_end_->code != 0) return server_end_->code;
  return coordinator_end_ ? coordinator_end_->code : 0;
}

// At all addresses, unless the job is on this host alone.
std::string listens_at(const std::string& coordinator) {
  const net::Endpoint at = net::parse_endpoint(coordinator).value();
  if (net::is_loopback(at.host))
    return net::to_string({at.host.find(':') == std::string::npos ? "127.0.0.1" : "::1", at.port});
  const std::string all = rendezvous::on_all_addresses([](const char* address) {
    rendezvous::listen(address, 0);
    return std::string(address);
  });
  return net::to_string({all, at.port});
}

std::vector<std::string> command_of_coordinator(const rendezvous::RankEnvironment& place,
                                                const config::Config& config) {
  const int most = place.workers + (place.on_its_own ? place.more_workers : 0);
  const std::int64_t min = std::max<std::int64_t>(config.integer("elastic.min"), 1);
  const std::int64_t max = config.integer("elastic.max");
  if ((max > 0 && max != most) || min > most)
    refuse("config",
           (min > most ? "elastic.min = " + std::to_string(min)
                       : "elastic.max = " + std::to_string(max)) +
               ", but by " +
               (std::getenv("TRIREME_WORKERS") != nullptr ? "TRIREME_WORKERS" : "TF_CONFIG") +
               (place.on_its_own ? " and TRIREME_MORE_WORKERS" : "") + " at most " +
               counted(most, "worker") + " may be there",
           "Change one of them.");
  std::vector<std::string> command = {
      own_program(), "coordinator",
      "--job",       place.job,
      "--elastic",   std::to_string(min) + ":" + std::to_string(most),
      "--servers",   std::to_string(place.servers),
      "--listen",    listens_at(place.coordinator)};
  if (place.on_its_own) command.insert(command.end(), {"--workers", std::to_string(place.workers)});
  if (const std::string& store = config.text("rendezvous.store"); !store.empty())
    command.insert(command.end(), {"--store", store});
  return command;
}

}  // namespace

int run_beside_coordinator(const rendezvous::RankEnvironment& place, const config::Config& config,
                           int argc, char** argv) {
  const std::vector<std::string> coordinator = command_of_coordinator(place, config);
  const bool kept = !config.text("rendezvous.store").empty();
  ::setenv("TRIREME_COORDINATOR", place.coordinator.c_str(), /*overwrite=*/1);
  std::vector<std::string> server = {this_executable()};
  server.insert(server.end(), argv + 1, argv + argc);
  return ServedPair(coordinator, kept, std::move(server)).run();
}

}  // namespace trireme::inline v0::cli
