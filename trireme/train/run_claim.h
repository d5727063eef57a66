// RunClaim: which folder a training takes, whether it starts or goes on there, and the lock that
// keeps every other job out of it until this object is gone.
//
// One per process, on the one that starts the ranks; the ranks only name the folder. Not thread
// safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/observe/folder_lock.h"
#include "trireme/train/run_folder.h"

namespace trireme {
inline namespace v0 {
namespace train {

/// A path that is printed, drawn into loss.svg and handed to the ranks. ConfigError, with `what`
/// the path is, for one with control characters or outside of UTF-8.
void check_printable(const char* what, const std::string& path);

/// As --out and --resume say it; empty: not given.
struct RunRequest {
  std::string out;     // new or empty; empty: the next free of runs/NAME, runs/NAME-2 …
  std::string resume;  // a run's folder; "auto": go on in `out` where it has a checkpoint
};

class RunClaim {
 public:
  /// Decides, and locks a folder that is there already; makes nothing. Throws ConfigError where the
  /// folder holds something else than the request expects, or another job has it.
  explicit RunClaim(RunRequest request);

  /// The run goes on after the newest checkpoint of folder().
  bool resumes() const noexcept { return resumes_; }
  /// The folder; empty path before take() where any free one will do.
  const RunFolder& folder() const noexcept { return folder_; }
  /// Makes the folder where it is missing (`name` of the run: for runs/NAME), locks it and clears a
  /// start without a checkpoint out of it. Throws as the constructor, and ResourceError.
  const RunFolder& take(const std::string& name);
  /// For the ranks: one that has it open keeps the folder locked.
  int lock_descriptor() const noexcept { return lock_->descriptor(); }

 private:
  void lock();
  void decide();
  void decide_out(RunState state);
  void decide_resume(RunState state);
  void make_next_free(const std::string& name);

  RunRequest request_;
  RunFolder folder_;
  bool resumes_ = false;
  std::unique_ptr<observe::FolderLock> lock_;
};

}  // namespace train
}  // namespace v0
}  // namespace trireme
