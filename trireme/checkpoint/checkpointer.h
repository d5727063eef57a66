// Checkpointer: crash-safe checkpoints in safetensors that load on any rank count.
//
// A folder `DIR/step-00000500/` holds model.safetensors (weights, readable by Python), state files
// and manifest.json (version, step, hash of every file); `DIR/latest` names the newest complete
// one. It is written to a temporary name, fsynced and renamed: a crash or a full disk leaves the
// one before valid. Collective: all ranks call the same methods in the same order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/job/job.h"
#include "trireme/tensor/state.h"

namespace torch::nn {
class Module;
}

namespace trireme {
inline namespace v0 {

namespace checkpoint {
class Storage;
}

struct CheckpointerOptions {
  long every = 500;      // steps between checkpoints; 0 = only when asked
  int keep = 3;          // newest ones kept
  std::string identity;  // the job's identity text: a checkpoint of another is refused
  /// Lines of it ("KEY = value") in which a checkpoint may differ, since they were changed on
  /// purpose.
  std::vector<std::string> changed = {};
  std::shared_ptr<checkpoint::Storage> storage;  // null: the local file system
  /// One job at a time has the folder, from resume() or the first save on. False: it is only read,
  /// or is locked already.
  bool lock = true;
};

class Checkpointer {
 public:
  Checkpointer(Job& job, std::string directory, CheckpointerOptions options = {});
  ~Checkpointer();
  /// `name` "train" holds the model: its shards without a '/' in their names go to
  /// model.safetensors.
  Checkpointer& add(std::string name, Saveable& part);
  /// Restores the newest checkpoint and returns the step to go on with (0: none there). A torn or
  /// flipped one, or one whose weights are NaN, throws CheckpointError naming file and damage.
  /// ConfigError names another job that has the folder.
  long resume();
  /// After step `step` (0-based) has been applied: saves where due. Where the job is to stop
  /// (SIGINT, SIGTERM, SIGUSR1, SIGHUP at any rank or at the launcher), saves this step on all
  /// ranks and then throws StopRequested, which ends the program with 130 or 143 unless it is
  /// caught. Ranks agree on it through the vote of the part that has one (Strategy, DataParallel),
  /// else here. Throws ConfigError where the folder holds checkpoints that this run did not
  /// resume() from.
  void after(long step);
  /// Saves now; `steps_done` = step + 1. Nothing where that step is saved already.
  void save(long steps_done);
  /// save(), and returns when every rank knows that the checkpoint is complete: the last thing
  /// before a program ends.
  void save_and_wait(long steps_done);

 private:
  [[noreturn]] void stop(long steps_done, int signal);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One file with all parameters and buffers, written by the calling rank (a shared one under all
/// its names). load_weights() is strict: every name, shape and type must match, or it throws
/// CheckpointError before anything is changed.
/// Python: load_state_dict(safetensors.torch.load_file).
void save_weights(const std::string& path, const torch::nn::Module& module);
void load_weights(const std::string& path, torch::nn::Module& module);

}  // namespace v0
}  // namespace trireme
