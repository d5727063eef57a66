#include "trireme/base/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace trireme::inline v0 {
namespace {

std::atomic<bool> said{false};

bool has_lost_its_reader(int descriptor) noexcept {
  pollfd one{descriptor, POLLOUT, 0};
  return poll(&one, 1, 0) == 1 && (one.revents & POLLERR) != 0;
}

// SIGPIPE may also come from a pipe or socket of the user.
void on_closed_pipe(int) {
  const int error = errno;
  if (has_lost_its_reader(STDOUT_FILENO) && !said.exchange(true)) {
    static constexpr char kText[] =
        "trireme: nobody reads standard output any more; the run goes on without it.\n";
    [[maybe_unused]] const auto put = write(STDERR_FILENO, kText, sizeof kText - 1);
  }
  errno = error;
}

void replace_default(int signal, void (*handler)(int)) noexcept {
  struct sigaction now {};
  if (sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  struct sigaction next {};
  next.sa_handler = handler;
  next.sa_flags = SA_RESTART;
  sigemptyset(&next.sa_mask);
  sigaction(signal, &next, nullptr);
}

}  // namespace

void open_standard_streams() noexcept {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    const int opened = open("/dev/null", descriptor == STDIN_FILENO ? O_RDONLY : O_WRONLY);
    if (opened < 0 || opened == descriptor) continue;
    dup2(opened, descriptor);
    close(opened);
  }
  replace_default(SIGXFSZ, SIG_IGN);
}

void outlive_readers() noexcept { replace_default(SIGPIPE, on_closed_pipe); }

}  // namespace trireme::inline v0
