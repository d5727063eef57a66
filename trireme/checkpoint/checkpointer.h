// Checkpointer: crash-safe checkpoints in safetensors that load on any rank count.
//
// A folder `DIR/step-00000500/` holds model.safetensors (weights, readable by Python),
// state.safetensors and manifest.json (version, step, hashes of every file); `DIR/latest` names the
// newest complete checkpoint. Ranks with large shards add their own files. DIR is a folder,
// file:///FOLDER or s3://BUCKET/PREFIX. After a crash or with a full disk, the checkpoint before
// stays valid. save() copies the shards that this rank writes, and a thread writes the copy while
// the training goes on. Collective: all ranks call the same methods in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/tensor/state.h"

namespace torch::nn {
class Module;
}

namespace trireme::inline v0 {

class Job;
namespace storage {
class Claim;
class Storage;
}  // namespace storage

struct CheckpointerOptions {
  long every = 500;      // steps between checkpoints; 0 = only when asked
  int keep = 3;          // number of newest checkpoints to keep
  std::string identity;  // lines "KEY = value"; a checkpoint of another identity is refused
  /// Keys of the identity that were changed on purpose: here a checkpoint may differ.
  std::vector<std::string> changed = {};
  /// In an elastic job, this many other ranks keep a copy in memory of the shards that only one
  /// rank has. Copies are made after every `memory_every`-th step (memory_copies.h).
  int memory = 0;
  long memory_every = 1;
  std::shared_ptr<storage::Storage> storage = nullptr;  // null: what the directory names
  /// Locks the folder for this job in resume(), or else in the first after() or save(), and a
  /// bucket in the constructor. Set false if the folder is only read, or is locked already.
  bool lock = true;
  /// The lock that this job has there, if `lock` is false. If another job has taken the place over
  /// while this one hung, saving throws ConfigError. Null: not checked.
  std::shared_ptr<const storage::Claim> claim = nullptr;
  double keep_hours = 0;  // also keeps the checkpoints of this many hours before the newest one
  int keep_best = 0;      // also keeps this many with the least loss given to validated()
  /// A rank that sees the storage and has at least this many bytes of shards writes them itself;
  /// fewer bytes go through rank 0, since many small files are slow. At least this many bytes of
  /// frozen weights get their own file, which is written once.
  std::size_t own_file_bytes = 16 << 20;
  /// How long a storage may be full or away while the training goes on, or while the ranks of an
  /// elastic job that have changed wait for it. After that the job ends with the storage's error
  /// (170). Environment TRIREME_CHECKPOINT_PATIENCE, seconds.
  Duration patience = std::chrono::minutes(10);
};

/// Memory, bytes sent and time that checkpoints and copies in memory have taken from this rank.
struct CheckpointCosts {
  std::int64_t snapshot_bytes = 0;   // the most memory, while a checkpoint is written beside steps
  std::int64_t copy_bytes = 0;       // the most memory of checkpoint.memory's copies on this rank
  std::int64_t copy_bytes_sent = 0;  // total
  Duration copy_wait{};              // total wait for copies that no step hid
};

/// A checkpoint that is complete.
struct SavedReport {
  long steps_done = 0;
  std::int64_t written_bytes = 0;
  std::int64_t kept_bytes = 0;  // of files taken over unchanged from the checkpoint before
};

class Checkpointer {
 public:
  Checkpointer(Job& job, std::string directory, CheckpointerOptions options = {});
  ~Checkpointer();
  /// `part` must outlive this object. The part "train" is the model: its shards without a '/' in
  /// their names go to model.safetensors.
  Checkpointer& add(std::string name, Saveable& part);
  /// Restores the newest checkpoint and returns the step to continue with (0: no checkpoint). After
  /// the ranks of an elastic job have changed, restores what the ranks have in memory instead.
  /// Throws CheckpointError, naming the file and the damage, if the checkpoint is truncated,
  /// changed or has NaN weights, and ConfigError if another job has locked the folder.
  long resume();
  /// Call after step `step` (0-based) has been applied; saves if a checkpoint is due. If the job
  /// was asked to stop (SIGINT, SIGTERM, SIGUSR1, SIGHUP at any rank or at the launcher), saves
  /// this step on all ranks and throws StopRequested, which ends the program with 130 or 143 unless
  /// it is caught. If the ranks of an elastic job are to change, throws RanksChanged, which
  /// run_elastic() catches (job/job.h). Ranks agree on a stop through the vote of a StepVoter part
  /// (Strategy, DataParallel), or with an all-reduce here. Throws ConfigError if the folder holds
  /// checkpoints that this run did not resume() from.
  void after(long step);
  /// Saves now; `steps_done` = step + 1. Does nothing if that step has been saved already. Waits
  /// for the save before it, or replaces it if the storage fails. Returns when this rank's shards
  /// are copied. Until `patience` is over, writing is tried again.
  void save(long steps_done);
  /// save(), then waits until every rank knows that it is complete. Call it before a program ends.
  void save_and_wait(long steps_done);
  /// Only makes the copies of save(), to measure memory. They live as long as the result.
  std::shared_ptr<void> rehearse();
  /// Waits until no save is under way on this rank. Throws the error of a save that failed for
  /// good.
  void wait();
  /// For a training that is done and whose checkpoints were its backup. Waits for all ranks, gives
  /// up a save under way, and removes all checkpoints, and the folder if nothing else is in it.
  /// Only warns if the storage fails. Nothing may be saved afterwards.
  void remove_all();
  CheckpointCosts costs() const;
  /// Rank 0: the last checkpoint that has been completed, once.
  std::optional<SavedReport> take_report();
  /// The validation loss of the present weights, for keep_best. Only rank 0's counts.
  void validated(double loss);

 private:
  [[noreturn]] void stop(long steps_done, int signal);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One file with all parameters and buffers, written by the calling rank; a shared tensor has all
/// its names. load_weights() is strict: unless every name, shape and type matches, it throws
/// CheckpointError and changes nothing.
/// Python: load_state_dict(safetensors.torch.load_file).
void save_weights(const std::string& path, const torch::nn::Module& module);
void load_weights(const std::string& path, torch::nn::Module& module);

struct BackupOptions {
  long every = 100;      // steps between backups
  std::string identity;  // lines "KEY = value"; a backup of another identity is refused
  /// In an elastic job: copies in the memory of other ranks (CheckpointerOptions).
  int memory = 0;
  long memory_every = 1;
  std::shared_ptr<storage::Storage> storage = nullptr;  // null: what the place names
};

/// BackupAndRestore: one backup of a training. A program that is started again after a crash goes
/// on from it; done() removes it. As tf.keras.callbacks.BackupAndRestore in TensorFlow.
///
///     BackupAndRestore backup(job, "runs/backup");
///     backup.add("train", strategy).add("data", batches);
///     for (long step = backup.restore(); step < steps; ++step) { ...; backup.after(step); }
///     save_weights("mine.safetensors", ...);   // results first: without a backup the training is done
///     backup.done();
///
/// It is a Checkpointer that keeps one checkpoint: a new one replaces the old one when it is
/// complete. The number of ranks may differ at the next start. Without done(), as after an
/// exception, the backup stays. Collective.
class BackupAndRestore {
 public:
  /// `place` is for the backup alone: a folder, file:///FOLDER or s3://BUCKET/PREFIX. Throws
  /// ConfigError for other addresses, or if another job has locked the bucket.
  BackupAndRestore(Job& job, const std::string& place, const BackupOptions& options = {});
  /// `part` must outlive this object. The part "train" is the model.
  BackupAndRestore& add(std::string name, Saveable& part) {
    checkpointer_.add(std::move(name), part);
    return *this;
  }
  /// Restores the backup and returns the step to go on with; 0: no backup. Throws CheckpointError
  /// if the backup is of another training or damaged, and ConfigError if another job uses the
  /// place.
  long restore() { return checkpointer_.resume(); }
  /// Call after step `step` (0-based) has been applied: backs up if a backup is due. If the job was
  /// asked to stop, backs up this step on all ranks and throws StopRequested.
  void after(long step) { checkpointer_.after(step); }
  /// The training is done: removes the backup, so that the next start begins anew.
  void done() { checkpointer_.remove_all(); }

 private:
  Checkpointer checkpointer_;
};

}  // namespace trireme::inline v0
