// Runs this program as a child process whose output goes to a file. Commands use it to run
// trainings that they measure.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/launch/hosts/sources.h"

namespace trireme::inline v0::cli {

/// The command of a launcher's coordinator process (launch::LaunchOptions::coordinator).
std::vector<std::string> coordinator_command();

/// A folder below TMPDIR, removed at the end. ResourceError naming `operation` if it cannot be
/// created.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(std::string operation);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::string& operation() const noexcept { return operation_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string operation_, path_;
};

/// Runs one child at a time, with a folder for their output. While it lives, a signal to this
/// process is passed on to the child and ends both, so no process is left behind. Create it before
/// any thread; not thread safe.
class OwnRuns {
 public:
  explicit OwnRuns(std::string operation);
  ~OwnRuns();
  OwnRuns(const OwnRuns&) = delete;
  const TemporaryFolder& folder() const noexcept { return folder_; }

  /// Runs this program with `arguments` in this process's environment and waits; both output
  /// streams go to the file `log` in the folder. Returns the exit code, or 128 + n if signal n
  /// ended the child. Throws StopRequested if this process received a signal.
  int run(const std::vector<std::string>& arguments, const std::string& log);
  /// For work of this process itself: throws StopRequested if it has received a signal.
  void check_stop();

 private:
  void pass_on(int signal);

  int stop_ = 0;  // the signal that asked this process to stop
  pid_t child_ = -1;
  const launch::BlockedSignals blocked_;  // before there are other threads
  const std::shared_ptr<launch::SignalSource> signals_;
  const std::shared_ptr<RealWaiter> waiter_;
  const TemporaryFolder folder_;
};

}  // namespace trireme::inline v0::cli
