// EarlyStop: ends a training whose validation loss no longer falls (Prechelt 1998, "Early stopping
// - but when?", his criterion UP with a patience).
//
// Every rank judges the same loss, bit for bit, so all end after the same step. It is saved and
// restored with the run. Not thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/tensor/state.h"

namespace trireme::inline v0::train {

class EarlyStop final : public Saveable {
 public:
  /// The training ends after `patience` validations in a row that do not lower the best loss by at
  /// least `min_improvement`; 0 = never.
  EarlyStop(std::int64_t patience, double min_improvement)
      : patience_(patience), min_improvement_(min_improvement) {}
  /// Takes the validation loss after `steps` steps, once: after a rank was lost a validation may be
  /// made again. The first finite loss is the first best loss.
  void judge(std::int64_t steps, double loss);
  /// Whether the loss after `steps` steps is still to be judged: a training that was stopped before
  /// a due validation makes it when it is resumed.
  bool lacks(std::int64_t steps) const noexcept { return steps > last_step_; }
  /// Whether the training must end.
  bool reached() const noexcept { return patience_ > 0 && waited_ >= patience_; }
  double best_loss() const noexcept { return best_loss_; }
  std::int64_t best_step() const noexcept { return best_step_; }

  std::vector<NamedShard> state() override { return {}; }
  std::string metadata() const override;
  /// Throws CheckpointError if `metadata` does not come from metadata().
  void restored(const std::string& metadata) override;

 private:
  std::int64_t patience_;
  double min_improvement_;
  bool judged_ = false;
  double best_loss_ = 0;
  std::int64_t best_step_ = 0, waited_ = 0, last_step_ = -1;
};

}  // namespace trireme::inline v0::train
