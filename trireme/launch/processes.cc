#include "trireme/launch/processes.h"

#include <signal.h>

#include <algorithm>
#include <utility>

namespace trireme::inline v0::launch {

Processes::Processes(const JobContext& job)
    : job_(job), all_(static_cast<std::size_t>(std::max(job.roles.processes(), 0))) {}

void Processes::note_start(int process) {
  (*this)[process].started = true;
  ++running_;
}

void Processes::settle() {
  --running_;
  job_.waiter->wake();
}

bool Processes::runs(Role role) const {
  for (int process = 0; process < count(); ++process)
    if (job_.roles.role_of(process) == role && (*this)[process].runs()) return true;
  return false;
}

void Processes::signal(int process, int signal) {
  job_.hosts.host_of(process).signal(process, signal, /*group=*/false);
}

void Processes::signal_group(int process, int signal) {
  job_.hosts.host_of(process).signal(process, signal, /*group=*/true);
}

void Processes::kill(int process) {
  (*this)[process].killed = true;
  signal_group(process, SIGKILL);
}

void Processes::signal_all(int signal) {
  for (int process = 0; process < count(); ++process) {
    One& one = (*this)[process];
    if (!one.runs()) continue;
    if (signal == SIGTERM || signal == SIGKILL) one.killed = true;
    signal_group(process, signal);
    if (signal == SIGTERM) signal_group(process, SIGCONT);  // a stopped process cannot react
  }
}

void Processes::kill_role(Role role) {
  for (int process = 0; process < count(); ++process)
    if (job_.roles.role_of(process) == role && (*this)[process].runs()) kill(process);
}

void Processes::ask_to_end(int process) {
  signal(process, SIGTERM);
  if_it_still_runs_after(job_.options.stop_grace, process,
                         [this, process] { signal_group(process, SIGKILL); });
}

void Processes::if_it_still_runs_after(Duration delay, int process, std::function<void()> task) {
  job_.run_after(delay,
                 [this, process, restarts = (*this)[process].restarts, task = std::move(task)] {
                   if ((*this)[process].runs() && (*this)[process].restarts == restarts) task();
                 });
}

}  // namespace trireme::inline v0::launch
