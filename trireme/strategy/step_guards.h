// StepGuards: the loss scale of fp16, the steps to skip (outliers, or not finite), and the gradient
// noise scale. Every rank sees the same figures, so all decide alike. Not thread safe.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trireme/strategy/gradient_noise.h"
#include "trireme/strategy/loss_scale.h"
#include "trireme/strategy/outlier_filter.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/agreement.h"
#include "trireme/sync/not_finite.h"

namespace trireme::inline v0::parallel {

struct StepGuardOptions {
  std::optional<LossScaleOptions> loss_scale = {};  // none: losses are not scaled
  OutlierOptions outliers = {};
  /// To measure the noise scale: the parameter of each leaf.
  std::optional<std::vector<std::uint32_t>> noise = {};
  std::int64_t skip_not_finite = 0;
  std::string skip_key = "skip_not_finite";  // that option's name, for messages
};

class StepGuards {
 public:
  explicit StepGuards(const StepGuardOptions& options);

  /// Sees every gradient; null if the noise scale is not measured.
  GradientObserver* observer() { return noise_ ? &*noise_ : nullptr; }
  /// The initial gradient of backward for a loss over `count` items.
  double loss_gradient(std::int64_t count) const {
    return loss_scale_ ? loss_scale_->loss_gradient(count) : 1;
  }
  void begin(std::uint32_t total, const kernel::Assignment& assignment, int rank) {
    if (noise_) noise_->begin(total, assignment, rank);
  }
  /// Sums the figures of the observed gradients over the ranks.
  Work reduce(comm::Communicator& world, const ReduceTerms& how) {
    return noise_ ? noise_->reduce(world, how) : Work();
  }
  /// Enters the refusal of this rank's sync into its vote. The loss scale may be the reason for a
  /// gradient that is not finite, but not for a loss.
  void enter(const Refusal& refusal, LocalVote& vote) const;

  /// Whether judge() and applied() need the gradient's norm.
  bool need_norm() const { return outliers_ || noise_; }
  /// Why all ranks skip this step; empty: they do not.
  std::string judge(double loss, double gradient_norm) {
    return outliers_ ? outliers_->judge(loss, gradient_norm) : std::string();
  }
  /// The step is applied; `gradient_norm` is that of the mean gradient over `count` items.
  void applied(double gradient_norm, std::int64_t count) {
    if (noise_) noise_->finish(gradient_norm, count);
  }
  /// The gradients of this step were finite.
  void passed() {
    if (loss_scale_) loss_scale_->passed();
  }
  /// After an overflow in fp16: lowers the loss scale. Returns why the step is skipped.
  std::string back_off(const Verdict& verdict);
  /// Counts a refused step as skipped; rethrows one that the budget does not cover.
  void skip(const StepRefused& refused) { not_finite_.take(refused); }

  /// Fills in skipped_steps, overflows, loss_scale and noise_scale.
  void report(StepResult& result) const;
  std::int64_t skipped_steps() const {
    return not_finite_.left_out() + (outliers_ ? outliers_->state.skipped : 0);
  }

  void save(nlohmann::json& into) const;
  /// A guard whose state `saved` lacks keeps its initial state. Throws nlohmann::json::exception if
  /// `saved` does not have the form that save() writes.
  void restore(const nlohmann::json& saved);

 private:
  NotFiniteBudget not_finite_;
  std::optional<LossScale> loss_scale_;
  std::optional<OutlierFilter> outliers_;
  std::optional<GradientNoise> noise_;
};

}  // namespace trireme::inline v0::parallel
