// SIGINT, SIGTERM, SIGUSR1 (Slurm and Lightning send it before they requeue a job) and SIGHUP of
// this process, and the end of its time, as a question that the training loop asks.
//
// The handler is installed by the first question, so a program that never asks ends by a signal as
// ever. A signal that is ignored, or that somebody else handles, stays so. One request may arrive
// as several signals (a process group, a launcher); a second Ctrl-C, or a SIGINT or SIGTERM one
// second after the first, ends the process at once.
#pragma once

#include <string>

#include "trireme/base/clock.h"

namespace trireme {
inline namespace v0 {
namespace job {

/// 130 once SIGINT has arrived, 143 after another of the signals or the end of the time, else 0.
/// The first of them counts. Thread safe.
int stop_signal() noexcept;
/// As if the signal had arrived here: the launcher got it.
void note_stop_signal(int signal) noexcept;
/// From `when` on (steady_now()) the job is to stop; `cause` names the limit. Before other threads
/// ask.
void stop_at(TimePoint when, std::string cause);
/// Why this process asks for a stop: "SIGUSR1", the cause of stop_at(); where nothing arrived
/// here, "a signal to another rank".
std::string stop_cause();

}  // namespace job
}  // namespace v0
}  // namespace trireme
