// What the launcher waits for, as ProgressSources of its Waiter: the lines that ranks write, the
// end of their processes, and signals. Callbacks run in the progress context.
#pragma once

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

/// SIGINT, SIGTERM, SIGHUP and SIGTSTP of this process while it lives; make it before any thread.
class SignalSource final : public DescriptorSource {
 public:
  explicit SignalSource(std::function<void(int signal)> on_signal);
  ~SignalSource() override;
  bool poll() override;
  bool pending() const noexcept override { return false; }

 private:
  std::function<void(int)> on_signal_;
};

}  // namespace launch
}  // namespace v0
}  // namespace trireme
