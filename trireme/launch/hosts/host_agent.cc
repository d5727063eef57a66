#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/standard_streams.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/launch/hosts/host_messages.h"
#include "trireme/launch/hosts/local_host.h"
#include "trireme/net/endpoint.h"
#include "trireme/rendezvous/secret.h"

namespace trireme::inline v0::launch {
namespace {

// Bytes that the launcher has not taken yet; beyond this, processes that write must wait.
constexpr std::size_t kMostWaiting = 1 << 20;
// Time after the last process's end; the launcher usually closes the connection long before.
constexpr Duration kIdle = std::chrono::minutes(1);
constexpr Duration kLastLines = std::chrono::milliseconds(300);
constexpr Duration kLookAgain = std::chrono::milliseconds(2);

// The address of ssh's other end, from SSH_CONNECTION, unless that is the launcher's own variable.
std::string address_of_launcher(const HostSetup& setup) {
  const std::string prefix = "ssh:";
  if (!setup.coordinator.starts_with(prefix)) return setup.coordinator;
  const char* const connection = std::getenv("SSH_CONNECTION");
  if (connection == nullptr || setup.connection == connection) return setup.fallback;
  std::string address = connection;
  address = address.substr(0, address.find(' '));
  return net::to_string(
      {address, static_cast<std::uint16_t>(std::atoi(setup.coordinator.c_str() + prefix.size()))});
}

void enter_folder(const HostSetup& setup) {
  if (setup.version != rendezvous::kWireVersion) {
    throw RefusedError("runs \"" + std::string(rendezvous::kWireVersion) +
                           "\", and the launcher runs \"" + setup.version + "\"",
                       {.advice = "Install one version on all hosts."});
  }
  if (chdir(setup.folder.c_str()) != 0) {
    throw ConfigError(
        "cannot enter the folder " + setup.folder + ": " + std::strerror(errno),
        {.advice = "A job runs in the folder in which it was started, on all hosts."});
  }
  if (!setup.shared_file.empty() && proof_of_file(setup.shared_file) != setup.shared_proof) {
    throw ConfigError("does not have the launcher's " + setup.shared_file,
                      {.advice = "It must lie in a folder that all hosts mount."});
  }
}

class HostAgent {
 public:
  HostAgent(int input, int output);
  [[noreturn]] void run();

 private:
  void on_message(const Message& message);
  void set_up(const HostSetup& setup);
  void start(const Message& message);
  void on_line(int process, bool error, std::string_view line);
  void report_end(int process, const Ending& ending, TimePoint latest);
  bool has_room();

  Guard guard_;  // made first, before there are threads
  const int input_;
  std::optional<LocalHost> host_;
  std::string coordinator_;
  std::set<int> running_;
  std::size_t starts_ = 0;
  bool in_a_hurry_ = false;
  std::shared_ptr<RealWaiter> waiter_ = RealWaiter::make(Duration::zero());
  std::shared_ptr<MessageSink> sink_;
  std::shared_ptr<MessageSource> source_;
};

HostAgent::HostAgent(int input, int output)
    : input_(input),
      sink_(std::make_shared<MessageSink>(Descriptor(output))),
      source_(std::make_shared<MessageSource>(
          input, "", [this](const Message& message) { on_message(message); })) {
  waiter_->add(sink_);
  waiter_->run([this] { sink_->send_bytes(kAgentHello); });
  source_->when_finished([this] {
    waiter_->remove(source_.get());
    waiter_->wake();
  });
  waiter_->add(source_);
}

// The guard kills the processes, and their children, when this process has ended.
void HostAgent::run() {
  waiter_->wait_until([this] { return source_->finished(); }, TimePoint::max());
  _exit(source_->fault().empty() ? 0 : static_cast<int>(ExitCode::Usage));
}

void HostAgent::on_message(const Message& message) {
  in_a_hurry_ = false;
  if (message.kind == "setup") {
    try {
      set_up(setup_from(message));
      sink_->send({"ready", -1, {coordinator_}});
    } catch (...) {
      const ErrorReport report = describe(std::current_exception());
      sink_->send({"refused", -1, {std::to_string(report.exit_code), report.sentence}});
    }
  } else if (message.kind == "start") {
    start(message);
  } else if (message.kind == "signal" && host_) {
    host_->signal(message.process, static_cast<int>(message.number(0)), message.number(1) != 0);
  }
}

void HostAgent::set_up(const HostSetup& setup) {
  enter_folder(setup);
  coordinator_ = address_of_launcher(setup);
  host_.emplace(
      *waiter_, guard_,
      LocalHostOptions{.secret = setup.secret,
                       .processes = setup.processes,
                       .bind = static_cast<Bind>(setup.bind)},
      HostEvents{.on_line = [this](int process, bool error,
                                   std::string_view line) { on_line(process, error, line); },
                 .on_start = {},
                 .on_end =
                     [this](int process, const Ending& ending) {
                       report_end(process, ending, waiter_->now() + kLastLines);
                     }});
}

void HostAgent::start(const Message& message) {
  StartOptions options = start_from(message);
  options.environment.push_back("TRIREME_COORDINATOR=" + coordinator_);
  ++starts_;
  running_.insert(message.process);
  try {
    if (!host_) throw ConfigError("a process was started before the host was ready");
    host_->start(message.process, options);
  } catch (...) {
    const ErrorReport report = describe(std::current_exception());
    running_.erase(message.process);
    sink_->send({"failed", message.process, {std::to_string(report.exit_code), report.sentence}});
  }
}

// Waits until the launcher takes what was sent, unless it has sent a message, perhaps a signal for
// the process that writes. Until that is read, lines that do not fit are dropped.
bool HostAgent::has_room() {
  while (sink_->waiting() > kMostWaiting) {
    if (in_a_hurry_) return false;
    pollfd either[2] = {{sink_->pipe(), POLLOUT, 0}, {input_, POLLIN, 0}};
    ::poll(either, 2, -1);
    in_a_hurry_ = either[0].revents == 0 && either[1].revents != 0;
    if (either[0].revents != 0) sink_->poll();
  }
  return true;
}

void HostAgent::on_line(int process, bool error, std::string_view line) {
  if (has_room()) sink_->send({error ? "err" : "out", process, {std::string(line)}});
}

// Reports the end after the last lines, so that the launcher has them before it closes the
// connection; not later than `latest`, since a child of the process may keep its pipe open.
void HostAgent::report_end(int process, const Ending& ending, TimePoint latest) {
  const TimePoint now = waiter_->now();
  if (!host_->output_finished(process) && now < latest) {
    waiter_->run_at(now + kLookAgain,
                    [this, process, ending, latest] { report_end(process, ending, latest); });
    return;
  }
  running_.erase(process);
  sink_->send(message_of(process, ending));
  // If the network is cut, the connection may stay open though nobody reads or closes it.
  if (running_.empty())
    waiter_->run_at(now + kIdle, [this, starts = starts_] {
      if (running_.empty() && starts == starts_) _exit(0);
    });
}

}  // namespace

int run_host_agent() {
  open_standard_streams();
  outlive_readers();
  try {
    // Other output of this process must not come between the messages.
    const int output = copy_of(STDOUT_FILENO).release();
    dup2(STDERR_FILENO, STDOUT_FILENO);
    HostAgent(take_standard_input().release(), output).run();
  } catch (...) {
    const ErrorReport report = describe(std::current_exception());
    std::fprintf(stderr, "%s\n", report.sentence.c_str());
    return report.exit_code;
  }
}

}  // namespace trireme::inline v0::launch
