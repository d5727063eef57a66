#include "trireme/launch/hosts/sources.h"

#include <fcntl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::inline v0::launch {
namespace {

constexpr std::size_t kLongestLine = 1 << 16;  // longer lines are split
constexpr int kReadsAtOnce = 16;

bool is_ignored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

int open_signals(const BlockedSignals& signals) {
  const int descriptor = signalfd(-1, &signals.which(), SFD_NONBLOCK | SFD_CLOEXEC);
  if (descriptor < 0) {
    throw ResourceError(std::string("signalfd failed: ") + std::strerror(errno),
                        {.operation = "launch", .advice = "Raise the limit on open files."});
  }
  return descriptor;
}

}  // namespace

DescriptorSource::~DescriptorSource() { close(descriptor_); }

PipeSource::PipeSource(int descriptor) : DescriptorSource(descriptor) {
  fcntl(descriptor, F_SETFL, O_NONBLOCK);
}

bool PipeSource::poll() {
  bool moved = false;
  char some[16384];
  // Limited, so that a rank that writes without end does not delay other ranks or signals.
  for (int reads = 0; reads < kReadsAtOnce && !finished_; ++reads) {
    const ssize_t got = read(descriptor_, some, sizeof some);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    moved = true;
    if (got > 0) {
      bytes_.append(some, static_cast<std::size_t>(got));
      take();
    } else {
      take_rest();
      finish();
    }
  }
  return moved;
}

void LineSource::take() {
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = bytes_.find('\n', begin)) != bytes_.npos; begin = end + 1)
    on_line_(std::string_view(bytes_).substr(begin, end - begin));
  bytes_.erase(0, begin);
  if (bytes_.size() > kLongestLine) take_rest();
}

void LineSource::take_rest() {
  if (!bytes_.empty()) on_line_(bytes_);
  bytes_.clear();
}

ExitSource::ExitSource(pid_t pid, int descriptor, std::function<void(pid_t)> on_group_end,
                       std::function<void(Exit)> on_exit)
    : DescriptorSource(descriptor),
      pid_(pid),
      on_group_end_(std::move(on_group_end)),
      on_exit_(std::move(on_exit)) {}

bool ExitSource::poll() {
  if (finished_) return false;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return false;
  kill(-pid_, SIGKILL);  // while the zombie still reserves the number
  on_group_end_(pid_);
  waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG);
  finish();
  const bool exited = info.si_code == CLD_EXITED;
  on_exit_(exited ? Exit{info.si_status, 0} : Exit{128 + info.si_status, info.si_status});
  return true;
}

BlockedSignals::BlockedSignals(std::initializer_list<int> signals) {
  sigemptyset(&which_);
  for (const int one : signals)
    if (one != SIGHUP || !is_ignored(SIGHUP)) sigaddset(&which_, one);
  pthread_sigmask(SIG_BLOCK, &which_, &before_);
}

BlockedSignals::~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

SignalSource::SignalSource(const BlockedSignals& signals, std::function<void(int)> on_signal)
    : DescriptorSource(open_signals(signals)), on_signal_(std::move(on_signal)) {}

bool SignalSource::poll() {
  signalfd_siginfo info{};
  if (read(descriptor_, &info, sizeof info) != sizeof info) return false;
  on_signal_(static_cast<int>(info.ssi_signo));
  return true;
}

Exit await_end(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return {128 + WTERMSIG(status), WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

int stop_signal_for(int signal) noexcept { return signal == SIGINT ? SIGINT : SIGTERM; }

}  // namespace trireme::inline v0::launch
