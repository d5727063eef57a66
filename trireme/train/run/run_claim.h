// RunClaim: chooses the folder of a training, decides whether the training starts or resumes there,
// and locks the folder against other jobs as long as this object lives.
//
// Only the process that starts the ranks has one. Not thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/observe/folder_lock.h"
#include "trireme/train/run/run_folder.h"

namespace trireme::inline v0::train {

/// Throws ConfigError if `path` has control characters or is not UTF-8: it is printed, drawn into
/// loss.svg and passed to the ranks. The error calls the path `what`.
void check_printable(const char* what, const std::string& path);

/// The values of --out and --resume; empty = not given.
struct RunRequest {
  std::string out;     // a new or empty folder; default: the first free runs/NAME, runs/NAME-2, ...
  std::string resume;  // a run's folder; "auto": resume in `out` if it has a checkpoint
  /// This process may be one that is started again, while others of its job train in the folder.
  bool shared = false;
};

class RunClaim {
 public:
  /// Decides, and locks the folder if it exists; makes nothing. Throws ConfigError if the folder's
  /// content does not fit the request, or another job has locked it.
  explicit RunClaim(RunRequest request);

  /// Whether the run continues after the newest checkpoint of folder().
  bool resumes() const noexcept { return resumes_ || from_elsewhere_; }
  /// The folder. Its path is empty before take() if the request names none.
  const RunFolder& folder() const noexcept { return place_.empty() ? folder_ : placed_; }
  /// Tells where the checkpoints are to be: checkpoint.path, or empty for RUN/checkpoint. With
  /// --resume auto the run continues there if there is a checkpoint, although the folder of the run
  /// is new. Throws ConfigError if checkpoints are there otherwise, or if a resumed run has its
  /// checkpoints elsewhere.
  void keep_checkpoints_at(const std::string& place);
  /// Makes and locks the folder that the request names, before anything is put into it.
  void make_folder();
  /// Makes the folder if it is missing (runs/`name` if the request names none), locks it, and
  /// removes the files of a run without a checkpoint, unless joins(). Throws like the constructor,
  /// and ResourceError.
  const RunFolder& take(const std::string& name);
  /// Another process of this job may lock the folder later (RunRequest::shared).
  bool shared() const noexcept { return request_.shared; }
  /// After take(): a shared folder has events of this job already. Ranks that begin anew drop them.
  bool joins() const noexcept { return joins_; }
  /// For the ranks: the folder stays locked as long as one of them has this descriptor open.
  int lock_descriptor() const noexcept { return lock_->descriptor(); }

 private:
  void lock();
  void decide();
  void decide_out(RunState state);
  void decide_resume(RunState state);
  void make_next_free(const std::string& name);

  RunRequest request_;
  RunFolder folder_;
  std::string place_;          // of the checkpoints, if keep_checkpoints_at() has told one
  RunFolder placed_{folder_};  // folder_ with its checkpoints there
  bool resumes_ = false, joins_ = false;
  bool from_elsewhere_ = false;  // the checkpoint to continue from is not in the run's folder
  std::unique_ptr<observe::FolderLock> lock_;
};

}  // namespace trireme::inline v0::train
