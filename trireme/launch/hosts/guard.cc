#include "trireme/launch/hosts/guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "trireme/base/error.h"

namespace trireme::inline v0::launch {
namespace {

constexpr int kMostGroups = 4096;

// Makes bare system calls only: the copy has one thread, and locks that other threads held are
// never released. It allocates nothing and keeps only the pipe's descriptor open.
[[noreturn]] void guard(int pipe) {
  static pid_t groups[kMostGroups];
  int number = 0;
  syscall(SYS_setsid);  // so that Ctrl-C does not reach it
  sigset_t all;
  std::memset(&all, 0xff, sizeof all);
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, nullptr, 8);
  syscall(SYS_prctl, PR_SET_NAME, "trireme-guard");
  if (pipe > 0) syscall(SYS_close_range, 0u, static_cast<unsigned>(pipe) - 1, 0);
  syscall(SYS_close_range, static_cast<unsigned>(pipe) + 1, ~0u, 0);
  for (pid_t news = 0; syscall(SYS_read, pipe, &news, sizeof news) == sizeof news;) {
    if (news > 0) {
      if (number < kMostGroups) groups[number++] = news;
      continue;
    }
    for (int i = 0; i < number; ++i)
      if (groups[i] == -news) groups[i--] = groups[--number];
  }
  for (int i = 0; i < number; ++i) syscall(SYS_kill, -groups[i], SIGKILL);
  for (;;) syscall(SYS_exit_group, 0);
}

}  // namespace

Guard::Guard() : pipe_(make_pipe()) {
  // Not fork(), whose handlers in libraries are for copies that continue the program.
  pid_ = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (pid_ == 0) guard(pipe_.out.get());
  if (pid_ < 0)
    throw ResourceError(
        std::string("could not start the launcher's guard: ") + std::strerror(errno),
        {.operation = "launch", .advice = "Raise the limits on processes and open files."});
  fcntl(pipe_.in.get(), F_SETFL, O_NONBLOCK);  // a killed guard does not read
}

Guard::~Guard() {
  pipe_ = Pipe();
  waitpid(pid_, nullptr, 0);
}

void Guard::watch(pid_t group) noexcept { tell(group); }
void Guard::forget(pid_t group) noexcept { tell(-group); }

void Guard::tell(pid_t news) const noexcept {
  [[maybe_unused]] const auto put =
      write(pipe_.in.get(), &news, sizeof news);  // atomic: a small write
}

}  // namespace trireme::inline v0::launch
