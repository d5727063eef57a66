// The launcher's ProgressSources: the lines that ranks write, the ends of their processes, and
// signals. Callbacks run in the progress context.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <atomic>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/waiter.h"

namespace trireme::inline v0::launch {

/// Owns a descriptor and waits until it is readable.
class DescriptorSource : public ProgressSource {
 public:
  explicit DescriptorSource(int descriptor) : descriptor_(descriptor) {}
  ~DescriptorSource() override;
  bool pending() const noexcept override { return !finished_; }
  int descriptor() const noexcept override { return descriptor_; }
  void arm(bool) noexcept override {}
  bool finished() const noexcept { return finished_; }
  /// `next` is called once, in the progress context; it must remove the source from its Waiter.
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

/// Reads a pipe until its other end is closed.
class PipeSource : public DescriptorSource {
 public:
  explicit PipeSource(int descriptor);
  bool poll() final;

 protected:
  std::string bytes_;  // read and not yet taken

 private:
  /// `bytes_` has grown.
  virtual void take() = 0;
  /// The pipe has ended; finish() follows.
  virtual void take_rest() {}
};

/// Splits a pipe's bytes into lines, without the newline. A last line without one counts too.
class LineSource final : public PipeSource {
 public:
  LineSource(int descriptor, std::function<void(std::string_view line)> on_line)
      : PipeSource(descriptor), on_line_(std::move(on_line)) {}

 private:
  void take() override;
  void take_rest() override;
  std::function<void(std::string_view)> on_line_;
};

struct Exit {
  int code = 0;  // 128+n if signal n ended it
  int signal = 0;
};
/// Calls `on_exit` once, when the process has ended. Before that it kills the rest of the process
/// group and calls `on_group_end`, because the group's number can be reused from then on.
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

/// While it lives, blocks signals (by default all that a launcher handles) for a SignalSource. Make
/// it before any thread, and destroy it on the same thread; signals that were not read then have
/// their usual effect. SIGHUP stays ignored if it was (nohup).
class BlockedSignals {
 public:
  explicit BlockedSignals(std::initializer_list<int> signals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1,
                                                                SIGTSTP});
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  const sigset_t& which() const noexcept { return which_; }

 private:
  sigset_t which_, before_;
};

/// Calls `on_signal` for each signal that BlockedSignals blocks.
class SignalSource final : public DescriptorSource {
 public:
  SignalSource(const BlockedSignals& signals, std::function<void(int signal)> on_signal);
  bool poll() override;
  bool pending() const noexcept override { return false; }

 private:
  std::function<void(int)> on_signal_;
};

/// Waits for the end of a child process.
Exit await_end(pid_t child);

/// The signal sent to the ranks: SIGINT for SIGINT, SIGTERM for all others.
int stop_signal_for(int signal) noexcept;

}  // namespace trireme::inline v0::launch
