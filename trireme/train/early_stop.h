// EarlyStop: ends a training whose validation loss has stopped to fall (Prechelt 1998, "Early
// stopping - but when?", his criterion UP with a patience).
//
// Every rank judges the same loss, bit for bit, so all come to the same end. Saved and restored
// with the run, its patience counts over an interruption. Not thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/tensor/state.h"

namespace trireme {
inline namespace v0 {
namespace train {

class EarlyStop final : public Saveable {
 public:
  /// `patience`: validations in a row without an improvement of at least `min_improvement` (of the
  /// loss) after which the training ends; 0 = never.
  EarlyStop(std::int64_t patience, double min_improvement)
      : patience_(patience), min_improvement_(min_improvement) {}
  /// The validation loss after so many steps. The first finite one is the measure of the next.
  void judge(std::int64_t steps, double loss);
  /// The training is to end.
  bool reached() const noexcept { return patience_ > 0 && waited_ >= patience_; }
  double best_loss() const noexcept { return best_loss_; }
  std::int64_t best_step() const noexcept { return best_step_; }

  std::vector<NamedShard> state() override { return {}; }
  std::string metadata() const override;
  /// Throws CheckpointError where `metadata` is not what this writes.
  void restored(const std::string& metadata) override;

 private:
  std::int64_t patience_;
  double min_improvement_;
  bool judged_ = false;
  double best_loss_ = 0;
  std::int64_t best_step_ = 0, waited_ = 0;
};

}  // namespace train
}  // namespace v0
}  // namespace trireme
