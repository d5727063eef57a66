// BackupAndRestore: one backup of a training, from which the same program goes on when it is started
// again after a crash, and which is removed when the training is done. Users of TensorFlow know it
// as tf.keras.callbacks.BackupAndRestore.
//
//     BackupAndRestore backup(job, "runs/backup");
//     backup.add("train", strategy).add("data", batches);
//     for (long step = backup.restore(); step < steps; ++step) { ...; backup.after(step); }
//     save_weights("mine.safetensors", ...);   // results first: without a backup the training is done
//     backup.done();
//
// It is a Checkpointer that keeps one checkpoint: the newest one replaces the one before when it is
// complete. The number of ranks may differ at the next start. Without done(), as after an exception,
// the backup stays. Collective, as a Checkpointer.
#pragma once

#include <memory>
#include <string>

#include "trireme/checkpoint/checkpointer.h"

namespace trireme::inline v0 {

struct BackupOptions {
  long every = 100;      // steps between backups
  std::string identity;  // lines "KEY = value"; a backup of another identity is refused
  /// In an elastic job: copies in the memory of other ranks (CheckpointerOptions).
  int memory = 0;
  long memory_every = 1;
  std::shared_ptr<checkpoint::Storage> storage = nullptr;  // null: what the place names
};

class BackupAndRestore {
 public:
  /// `place` is for the backup alone: a folder, file:///FOLDER or s3://BUCKET/PREFIX. Throws
  /// ConfigError for another one, or if another job has locked the bucket.
  BackupAndRestore(Job& job, const std::string& place, const BackupOptions& options = {});
  /// `part` must outlive this object. The part "train" is the model.
  BackupAndRestore& add(std::string name, Saveable& part);
  /// Restores the backup, and returns the step to go on with; 0 without one. Throws CheckpointError
  /// if it is of another training or damaged, and ConfigError if another job uses the place.
  long restore();
  /// Call after step `step` (0-based) has been applied: backs up if it is time. If the job was asked
  /// to stop, backs up this step on all ranks and throws StopRequested (Checkpointer::after()).
  void after(long step);
  /// The training is done: removes the backup, so that the next start begins anew.
  void done();

 private:
  Checkpointer checkpointer_;
};

}  // namespace trireme::inline v0
