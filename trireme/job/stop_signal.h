// Whether this process should stop: it received SIGINT, SIGTERM, SIGUSR1 (sent by Slurm and
// Lightning before they requeue a job) or SIGHUP, or its time is up. The training loop asks.
//
// The first question installs the handler, so a program that never asks ends by a signal as usual.
// Signals that are ignored or handled by others are left alone. One request may arrive as several
// signals (process group, launcher). A second Ctrl-C, or a SIGINT or SIGTERM at least a second
// after the first one, ends the process at once.
#pragma once

#include <string>

#include "trireme/base/clock.h"

namespace trireme::inline v0::job {

/// 130 after SIGINT, 143 after another of the signals or at the end of the time; otherwise 0. The
/// first one counts. Thread safe.
int stop_signal() noexcept;
/// Acts as if `signal` had arrived here; used when the launcher received it.
void note_stop_signal(int signal) noexcept;
/// Asks for a stop from `when` on (steady_now()); `cause` names the limit. Call it before other
/// threads ask.
void stop_at(TimePoint when, std::string cause);
/// Why this process asks for a stop: "SIGUSR1", the cause of stop_at(), or, if nothing arrived
/// here, "a signal to another rank".
std::string stop_cause();

}  // namespace trireme::inline v0::job
