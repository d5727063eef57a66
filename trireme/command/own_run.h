// This program as a child process whose output goes to a file: trainings that a command makes to
// measure something.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/real_waiter.h"
#include "trireme/launch/sources.h"

namespace trireme {
inline namespace v0 {
namespace command {

/// A folder below TMPDIR, removed at the end. ResourceError naming `operation` where there can be
/// none.
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

/// One child after the other, and a folder for what they write. While it lives, a signal to this
/// process goes on to the child and ends it all, so that neither is left behind. Make it before
/// any thread; not thread safe.
class OwnRuns {
 public:
  explicit OwnRuns(std::string operation);
  ~OwnRuns();
  OwnRuns(const OwnRuns&) = delete;
  const TemporaryFolder& folder() const noexcept { return folder_; }

  /// Runs this program with `arguments` in this process's environment and waits; both its streams
  /// go to the file `log` in the folder. The exit code; 128 + n where signal n ended it.
  /// StopRequested where a signal came to this process.
  int run(const std::vector<std::string>& arguments, const std::string& log);

 private:
  void pass_on(int signal);

  int stop_ = 0;  // what this process was asked to stop with
  pid_t child_ = -1;
  const launch::BlockedSignals blocked_;  // before there are other threads
  const std::shared_ptr<launch::SignalSource> signals_;
  const std::shared_ptr<RealWaiter> waiter_;
  const TemporaryFolder folder_;
};

}  // namespace command
}  // namespace v0
}  // namespace trireme
