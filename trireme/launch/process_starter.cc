#include "trireme/launch/process_starter.h"

#include <unistd.h>

#include <utility>

#include "trireme/base/error.h"

namespace trireme::inline v0::launch {

ProcessStarter::ProcessStarter(const JobContext& job, Processes& processes,
                               std::function<void(int, const std::string&)> on_fault)
    : job_(job), processes_(processes), on_fault_(std::move(on_fault)) {}

bool ProcessStarter::starts_first(int process) const {
  if (job_.roles.role_of(process) != Role::Worker) return true;
  if (!job_.options.elastic) return process < job_.roles.workers;
  return process < job_.options.ranks + job_.options.elastic->spares;
}

bool ProcessStarter::start_next(bool more) {
  if (!starting_) return false;
  while (next_ < processes_.count() && !starts_first(next_)) ++next_;
  if (more && next_ < processes_.count()) {
    try {
      start(next_);
      ++next_;
      return true;
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  starting_ = false;
  job_.waiter->wake();
  return true;
}

std::vector<std::string> ProcessStarter::environment_of(int process) const {
  const rendezvous::Roles& roles = job_.roles;
  std::vector<std::string> result = job_.options.environment;
  const auto put = [&](const std::string& name, const std::string& value) {
    result.push_back(name + "=" + value);
  };
  const Role role = roles.role_of(process);
  put("TRIREME_RANK", std::to_string(roles.number_of(process)));
  put("TRIREME_SIZE", std::to_string(roles.count(role)));
  put("TRIREME_ROLE", role == Role::Server      ? "server"
                      : role == Role::Evaluator ? "evaluator"
                                                : "worker");
  put("TRIREME_WORKERS", std::to_string(roles.workers));
  put("TRIREME_SERVERS", std::to_string(roles.servers));
  put("TRIREME_EVALUATOR", roles.evaluator ? "1" : "0");
  put("TRIREME_MORE_WORKERS", std::to_string(roles.more_workers));
  put("TRIREME_JOB", std::to_string(getpid()));
  put("TRIREME_ELASTIC", job_.options.elastic ? "1" : "0");
  put("TRIREME_RESTARTS", std::to_string(processes_[process].restarts));
  return job_.hosts.environment_of(process, std::move(result));
}

void ProcessStarter::start(int process) {
  const LaunchOptions& options = job_.options;
  const bool here = job_.hosts.is_local(process);
  const bool direct = here && options.rank0_direct && (process == 0 || options.elastic) &&
                      options.log_dir.empty() && !options.on_line;
  // A rank in its own process group may not read the terminal; rank 0 may read from a pipe or file.
  const bool reads = here && process == 0 && isatty(STDIN_FILENO) == 0;
  job_.hosts.host_of(process).start(process,
                                    {.command = options.command,
                                     .environment = environment_of(process),
                                     .direct = direct,
                                     .reads = reads,
                                     .inherit = here ? options.inherit : std::vector<int>{}});
}

void ProcessStarter::start_again_after(Duration delay, int process) {
  if (!restarts_) return;
  ++due_;
  processes_[process].due = true;
  job_.run_after(delay, [this, process] {
    if (!restarts_) return;
    if (std::exchange(processes_[process].due, false)) start_again(process);
    if (restarts_) --due_;  // a start that fails may have ended all restarts
    job_.waiter->wake();
  });
}

void ProcessStarter::start_again(int process) {
  Processes::One& one = processes_[process];
  one.exit.reset();
  one.started = false;
  one.killed = one.silent = one.leaves = one.ends = false;
  ++one.restarts;
  try {
    start(process);
  } catch (const Error& error) {
    one.exit = Exit{-1, 0};
    on_fault_(process, job_.roles.name_of(process) + " cannot be started again: " + error.what());
  }
}

std::vector<int> ProcessStarter::stop_restarting() {
  restarts_ = false;
  due_ = 0;
  std::vector<int> dropped;
  for (int process = 0; process < processes_.count(); ++process)
    if (std::exchange(processes_[process].due, false)) dropped.push_back(process);
  return dropped;
}

}  // namespace trireme::inline v0::launch
