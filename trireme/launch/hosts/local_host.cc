#include "trireme/launch/hosts/local_host.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "trireme/launch/message.h"
#include "trireme/observe/machine.h"
#include "trireme/rendezvous/secret.h"

namespace trireme::inline v0::launch {
namespace {

CoreShare share_of_cores(int processes, Bind bind) {
  const char* bound = std::getenv("OMP_PROC_BIND");
  const bool binds = !std::getenv("GOMP_CPU_AFFINITY") && !std::getenv("KMP_AFFINITY") &&
                     (!bound || std::string(bound) == "false");
  return share_cores(observe::affinity_cores(), observe::usable_cores().usable,
                     std::max(processes, 1), binds ? bind : Bind::None, numa_nodes());
}

}  // namespace

LocalHost::LocalHost(Waiter& waiter, Guard& guard, const LocalHostOptions& options,
                     HostEvents events)
    : waiter_(waiter),
      guard_(guard),
      events_(std::move(events)),
      secret_file_(rendezvous::secret_descriptor(options.secret)),
      share_(share_of_cores(options.processes, options.bind)) {}

std::vector<std::string> LocalHost::environment_of(const StartOptions& options, int status) const {
  std::vector<std::string> result = options.environment;
  const auto put = [&](const std::string& name, const std::string& value) {
    result.push_back(name + "=" + value);
  };
  put("TRIREME_SECRET_FD", std::to_string(secret_file_.get()));
  put("TRIREME_STATUS_FD", std::to_string(status));
  put("TRIREME_CORES", std::to_string(share_.per_rank));
  put("TRIREME_SHARED_CORES", share_.overcommitted ? "1" : "0");
  if (std::getenv("GLIBC_TUNABLES") == nullptr) put("GLIBC_TUNABLES", kAllocatorTunables);
  for (const std::string& text : own_environment()) add_variable(result, text);
  return result;
}

void LocalHost::start(int process, const StartOptions& options) {
  // A source closes its descriptor with its last reference.
  std::erase_if(pipes_, [process](const auto& pipe) {
    return pipe.first == process && pipe.second->finished();
  });
  Pipe output, error;
  if (!options.direct) {
    output = make_pipe();
    error = make_pipe();
    add_pipe(process, false, std::move(output.out));
    add_pipe(process, true, std::move(error.out));
  }
  const Descriptor status(rendezvous::StatusPage::make_descriptor());
  // A process that is started again keeps its cores.
  Running& running =
      processes_.try_emplace(process, Running{.number = processes_.size()}).first->second;
  running.status = std::make_unique<rendezvous::StatusPage>(copy_of(status.get()).release());
  const Descriptor nothing = options.reads ? Descriptor() : empty_input();
  std::vector<int> inherit = options.inherit;
  inherit.insert(inherit.end(), {secret_file_.get(), status.get()});
  const auto& pinned = share_.pinned;
  supervise(process, spawn({.command = options.command,
                            .environment = environment_of(options, status.get()),
                            .input = nothing.get(),
                            .output = output.in.get(),
                            .error = error.in.get(),
                            .inherit = inherit,
                            .cores = running.number < pinned.size() ? pinned[running.number]
                                                                    : std::vector<int>{}}));
}

void LocalHost::supervise(int process, const Process& started) {
  guard_.watch(started.pid);
  processes_[process].pid = started.pid;
  try {
    add(std::make_shared<ExitSource>(
        started.pid, started.descriptor, [this](pid_t group) { guard_.forget(group); },
        [this, process](Exit exit) { ended(process, exit); }));
  } catch (...) {  // without the source its end would not be noticed
    kill(-started.pid, SIGKILL);
    guard_.forget(started.pid);
    waitpid(started.pid, nullptr, 0);
    processes_[process].pid = -1;
    throw;
  }
  if (events_.on_start) events_.on_start(process, started.pid);
}

void LocalHost::ended(int process, Exit exit) {
  Running& running = processes_[process];
  running.pid = -1;
  events_.on_end(process, {exit, running.status->read(steady_now()), running.status->last_words()});
}

void LocalHost::signal(int process, int signal, bool group) {
  const auto found = processes_.find(process);
  if (found == processes_.end() || found->second.pid <= 0) return;
  kill(group ? -found->second.pid : found->second.pid, signal);
}

void LocalHost::add(std::shared_ptr<DescriptorSource> source) {
  source->when_finished([this, raw = source.get()] { waiter_.remove(raw); });
  waiter_.add(source);
}

void LocalHost::add_pipe(int process, bool error, Descriptor end) {
  auto pipe = std::make_shared<LineSource>(
      end.release(),
      [this, process, error](std::string_view line) { events_.on_line(process, error, line); });
  pipes_.emplace(process, pipe);
  add(pipe);
}

bool LocalHost::output_finished() const {
  return std::ranges::all_of(pipes_, [](const auto& pipe) { return pipe.second->finished(); });
}

bool LocalHost::output_finished(int process) const {
  const auto [begin, end] = pipes_.equal_range(process);
  return std::all_of(begin, end, [](const auto& pipe) { return pipe.second->finished(); });
}

}  // namespace trireme::inline v0::launch
