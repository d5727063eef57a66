// CheckpointEvaluator: follows a run's checkpoints and evaluates each complete one once, in the order
// of their steps, until no more can come.
//
// It gives a checkpoint's files second names in RUN/evaluating before it reads them, so that
// checkpoint.keep may remove the originals meanwhile. Nothing waits for it: if it is slower than the
// training it takes the oldest checkpoint that is left, and the ones that went before their turn are
// named. Not thread safe. No LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

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
  /// Whether to leave before that, with checkpoints left.
  std::function<bool()> stopped = [] { return false; };
  /// Whether one of the two may have changed; cheap. It is also looked every `look`.
  std::function<bool()> woken = [] { return false; };
  std::function<void(const std::string& line)> say = [](const std::string&) {};
  /// How long after the end of the run the checkpoints that are left may take. If they would take
  /// longer, the newest alone is evaluated.
  Duration patience = std::chrono::minutes(30);
  Duration look = std::chrono::milliseconds(200);
  std::string unit = {};  // of the loss, for people
  bool json = false;      // events on standard output, too
};

class CheckpointEvaluator {
 public:
  /// Throws what EvaluationRecord's constructor throws.
  CheckpointEvaluator(
      const RunFolder& run, EvaluatorOptions options,
      const std::shared_ptr<storage::FileSystem>& storage = storage::local_file_system());
  /// Removes RUN/evaluating.
  ~CheckpointEvaluator();

  void run();
  const EvaluationRecord& record() const noexcept { return record_; }

 private:
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
  storage::CheckpointFolder own_;  // RUN/evaluating
  EvaluationRecord record_;
  std::set<std::int64_t> waiting_;     // complete, and not evaluated
  std::optional<TimePoint> deadline_;  // after the end of the run
  Duration last_{};                    // how long the last evaluation took
};

}  // namespace trireme::inline v0::train
