#include "trireme/base/end_by_signal.h"

#include <signal.h>
#include <unistd.h>

namespace trireme::inline v0 {

void end_by(int signal) noexcept {
  ::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  raise(signal);
  _exit(128 + signal);
}

void let_signals_end_process_1() noexcept {
  if (getpid() != 1) return;
  for (const int one : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction now {};
    if (sigaction(one, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(one, end_by);
  }
}

}  // namespace trireme::inline v0
