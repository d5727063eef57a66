// SIGINT and SIGTERM of this process as a question that the training loop asks.
//
// The handler is installed by the first question, so a program that never asks ends by Ctrl-C as
// ever; the second signal ends it in any case.
#pragma once

namespace trireme {
inline namespace v0 {
namespace job {

/// 130 or 143 once a signal has arrived, else 0. Thread safe.
int stop_signal() noexcept;
/// As if the signal (SIGINT or SIGTERM) had arrived here: the launcher got it.
void note_stop_signal(int signal) noexcept;

}  // namespace job
}  // namespace v0
}  // namespace trireme
