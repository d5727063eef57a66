// SignalsBlocked: keeps signals away from the library's threads, for the program's own threads.
#pragma once

#include <signal.h>

namespace trireme::inline v0 {

/// While it lives, this thread blocks all signals. Threads started meanwhile block them for good.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace trireme::inline v0
