// EvaluationRecord: an evaluator's results for a run's checkpoints. RUN/evaluator.jsonl has an
// event for each, and RUN/best is a run's folder with the best checkpoint so far.
//
// A new best checkpoint is complete in RUN/best before its event is written; then keep_best_alone()
// removes the former one. So after a crash at any point, the next EvaluationRecord has in RUN/best
// a checkpoint that the events name. Locks RUN/best. Not thread safe. No LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "trireme/observe/events.h"
#include "trireme/storage/folder.h"
#include "trireme/train/run/run_folder.h"

namespace trireme::inline v0::train {

class EvaluationRecord {
 public:
  /// Continues the record of an earlier process. Events of steps that the run's checkpoints do not
  /// reach (it was taken back to an older one) are dropped. Throws ConfigError if another process
  /// evaluates this run, and what check() throws.
  explicit EvaluationRecord(const RunFolder& run, std::shared_ptr<storage::FileSystem> storage =
                                                      storage::local_file_system());

  /// ConfigError if RUN/best was continued as a run of its own.
  static void check(const RunFolder& run);

  /// ConfigError if another evaluator has taken the run over while this process hung. add() and
  /// give_up() call it, too, and keep_best_alone() before it removes something.
  void check_claim() const {
    if (claim_) claim_->check();
  }
  void echo_to_stdout(bool on) noexcept { events_.echo_to_stdout(on); }
  /// Whether this checkpoint was evaluated, refused or missed.
  bool has(std::int64_t step) const { return losses_.contains(step); }
  /// How many were evaluated.
  int count() const;
  struct Best {
    std::int64_t step = 0;
    double loss = 0;
  };
  const std::optional<Best>& best() const noexcept { return best_; }

  /// A checkpoint of `holder` has this loss. Adds "best" and "time" to `event` and writes it. True
  /// if no loss so far was as low: RUN/best has the checkpoint then.
  bool add(std::int64_t step, double loss, observe::Event event,
           const storage::CheckpointFolder& holder);
  /// Removes the former best checkpoint.
  void keep_best_alone();
  /// The checkpoint will not be evaluated. `kind`: "refused" (it is damaged) or "missed".
  void give_up(std::int64_t step, const std::string& kind, const std::string& reason);

 private:
  void read(const std::string& path);
  void choose_best(const storage::CheckpointFolder& run);

  const std::shared_ptr<storage::FileSystem> storage_;
  const RunFolder best_folder_;
  storage::CheckpointFolder best_checkpoints_;
  std::shared_ptr<void> lock_;
  std::shared_ptr<const storage::Claim> claim_;  // null: RUN/best cannot be locked
  observe::EventWriter events_;
  std::map<std::int64_t, std::optional<double>> losses_;  // by step; none: no number, or given up
  std::optional<Best> best_;
  bool best_is_alone_ = false;
};

}  // namespace trireme::inline v0::train
