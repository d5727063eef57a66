// What the launcher waits for, as ProgressSources of its Waiter: the lines that ranks write, the
// end of their processes, and signals. Callbacks run in the progress context.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/waiter.h"

namespace trireme {
inline namespace v0 {
namespace launch {

/// A descriptor whose readiness ends in a callback; closes it.
class DescriptorSource : public ProgressSource {
 public:
  explicit DescriptorSource(int descriptor) : descriptor_(descriptor) {}
  ~DescriptorSource() override;
  bool pending() const noexcept override { return !finished_; }
  int descriptor() const noexcept override { return descriptor_; }
  void arm(bool) noexcept override {}
  bool finished() const noexcept { return finished_; }
  /// Called once in the progress context; take the source away from its Waiter there.
  void when_finished(std::function<void()> next) { when_finished_ = std::move(next); }

 protected:
  void finish() {
    finished_ = true;
    if (when_finished_) when_finished_();
  }
  const int descriptor_;
  std::atomic<bool> finished_{false};

 private:
  std::function<void()> when_finished_;
};

/// Cuts a pipe's bytes into lines (without the newline; a last one without newline counts too).
class LineSource final : public DescriptorSource {
 public:
  LineSource(int descriptor, std::function<void(std::string_view line)> on_line);
  bool poll() override;

 private:
  void emit_lines();
  std::function<void(std::string_view)> on_line_;
  std::string buffer_;
};

struct Exit {
  int code = 0;  // 128+n where a signal ended it
  int signal = 0;
};
/// Calls once, when the process has ended; what is left of its process group is killed first.
/// `on_group_end`: its number is about to become free.
class ExitSource final : public DescriptorSource {
 public:
  ExitSource(pid_t pid, int descriptor, std::function<void(pid_t)> on_group_end,
             std::function<void(Exit)> on_exit);
  bool poll() override;

 private:
  const pid_t pid_;
  std::function<void(pid_t)> on_group_end_;
  std::function<void(Exit)> on_exit_;
};

/// Keeps the launcher's signals (SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGTSTP) for a SignalSource
/// while it lives; make it before any thread, and destroy it on the same thread. What nobody has
/// read by then does what it does in any program. SIGHUP stays ignored where it was (nohup).
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  const sigset_t& which() const noexcept { return which_; }

 private:
  sigset_t which_, before_;
};

/// Those signals, as they come.
class SignalSource final : public DescriptorSource {
 public:
  SignalSource(const BlockedSignals& signals, std::function<void(int signal)> on_signal);
  bool poll() override;
  bool pending() const noexcept override { return false; }

 private:
  std::function<void(int)> on_signal_;
};

/// What the ranks are asked by: SIGINT by itself, SIGTERM by every other one.
int stop_signal_for(int signal) noexcept;
/// Ends this process by `signal`, whatever is blocked or handled.
[[noreturn]] void end_by(int signal) noexcept;

}  // namespace launch
}  // namespace v0
}  // namespace trireme
