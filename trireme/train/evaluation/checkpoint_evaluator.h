// CheckpointEvaluator: follows a run's checkpoints and evaluates each complete one once, in the
// order of their steps, until no more can come.
//
// It gives a checkpoint's files second names in RUN/evaluating before it reads them, so that
// checkpoint.keep may remove the originals meanwhile. Nothing waits for it: if it is slower than
// the training, it takes the oldest checkpoint that is left, and reports those that were removed
// before their turn. A storage that is away or full (ResourceError) is tried again after growing
// pauses. Not thread safe. No LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/waiter.h"
#include "trireme/observe/events.h"
#include "trireme/train/evaluation/evaluation_record.h"

namespace trireme::inline v0::train {

/// The loss of a checkpoint, and its event (observe::validation_event).
struct EvaluatedCheckpoint {
  double loss = 0;
  observe::Event event;
};

struct EvaluatorOptions {
  std::shared_ptr<Waiter> waiter;
  /// Evaluates the only checkpoint in a folder. CheckpointError: it is damaged.
  std::function<EvaluatedCheckpoint(const std::string& folder, std::int64_t step)> evaluate;
  /// Whether the run writes no more checkpoints.
  std::function<bool()> ended;
  /// Whether to stop before that, with checkpoints left.
  std::function<bool()> stopped = [] { return false; };
  /// Whether `ended` or `stopped` may have changed; cheap. Both are also asked every `look`.
  std::function<bool()> woken = [] { return false; };
  std::function<void(const std::string& line)> say = [](const std::string&) {};
  /// How long the remaining checkpoints may take after the end of the run. If they would take
  /// longer, only the newest is evaluated.
  Duration patience = std::chrono::minutes(30);
  /// How long the storage may fail at a time.
  Duration storage_patience = std::chrono::minutes(10);
  Duration look = std::chrono::milliseconds(200);
  std::string unit = {};  // of the loss, for people
  bool json = false;      // events on standard output, too
};

class CheckpointEvaluator {
 public:
  CheckpointEvaluator(
      const RunFolder& run, EvaluatorOptions options,
      const std::shared_ptr<storage::FileSystem>& storage = storage::local_file_system());
  /// Removes RUN/evaluating.
  ~CheckpointEvaluator();

  /// Throws what EvaluationRecord's constructor throws, and ResourceError when the storage has
  /// failed for `storage_patience`.
  void run();

 private:
  bool take_turn();
  void open_record();
  void wait_for_storage(const ResourceError& error);
  void end_outage();
  void look();
  void miss_all_but_newest();
  void miss(std::int64_t step, const std::string& reason);
  void evaluate(std::int64_t step);
  std::string with_unit(double loss) const;
  void conclude() const;

  const RunFolder folder_;
  const EvaluatorOptions options_;
  const std::shared_ptr<storage::FileSystem> storage_;
  const storage::CheckpointFolder checkpoints_;
  storage::CheckpointFolder own_;           // RUN/evaluating
  std::optional<EvaluationRecord> record_;  // null until the storage has answered
  std::set<std::int64_t> waiting_;          // complete, and not evaluated
  std::optional<TimePoint> deadline_;       // after the end of the run
  Duration last_{};                         // how long the last evaluation took
  std::optional<TimePoint> failing_since_;
  Duration pause_{};  // before the next try
};

}  // namespace trireme::inline v0::train
