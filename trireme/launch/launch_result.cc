#include "trireme/launch/launch_result.h"

#include "trireme/launch/rank_end.h"

namespace trireme::inline v0::launch {

LaunchResult result_of(const rendezvous::Roles& roles, const Processes& processes,
                       const JobStop& stop, bool started_all,
                       const std::optional<rendezvous::Failure>& failure) {
  LaunchResult result;
  result.stop_signal = stop.first_signal();
  result.out_of_time = stop.out_of_time();
  result.failure = failure;
  const int stop_signal = stop.stop_signal();
  int stopped = stop.first_signal() != 0 && !started_all ? 128 + stop_signal : 0;
  int by = -1;  // a rank that stopped without being killed by us
  for (int rank = 0; rank < processes.count(); ++rank) {
    const Processes::One& one = processes[rank];
    const Exit exit = one.exit.value_or(Exit{-1, 0});
    result.exit_codes.push_back(exit.code);
    if (roles.role_of(rank) != Role::Worker || one.leaves || one.ends) continue;
    const bool ours =
        stop_signal != 0 && exit.signal != 0 && (one.killed || exit.signal == stop_signal);
    if (!ours && exit.code != 130 && exit.code != 143) continue;
    stopped = ours ? 128 + stop_signal : exit.code;
    if (!one.killed) by = rank;
  }
  // Those that lose a peer by a stop fail, too. A crash is no stop: nothing may have been saved.
  const bool failed = result.failure && !result.failure->secondary() && !result.failure->stopped();
  if (stopped != 0 && !failed && (stop_signal != 0 || !result.failure)) {
    result.failure.reset();
    result.exit_code = stopped;
    result.last_line = stop.first_signal() != 0 ? "stopped by " + name_of(stop.first_signal()) + "."
                                                : "stopped, as a rank asked.";
  } else if (result.failure && result.failure->secondary() && by >= 0) {
    result.exit_code = result.exit_codes[by];
    result.last_line = roles.name_of(by) + " was stopped by " + name_of(result.exit_code - 128) +
                       ", and others lost it: " + result.failure->sentence;
  } else if (result.failure) {
    result.exit_code = result.failure->exit_code;
    result.last_line = result.failure->sentence;
  }
  return result;
}

}  // namespace trireme::inline v0::launch
