// Ending by a signal, also in process 1 of a container, for which the kernel drops signals that have
// no handler.
#pragma once

namespace trireme::inline v0 {

/// Ends this process by `signal`, even if it is blocked or handled; process 1 by its exit status,
/// 128 + `signal`. Async-signal-safe.
[[noreturn]] void end_by(int signal) noexcept;

/// From now on SIGINT, SIGTERM, SIGHUP and SIGUSR1 end process 1, as they end any other process,
/// unless they are ignored or handled.
void let_signals_end_process_1() noexcept;

}  // namespace trireme::inline v0
