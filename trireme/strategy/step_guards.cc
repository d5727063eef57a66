#include "trireme/strategy/step_guards.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "trireme/tensor/saved_count.h"

namespace trireme::inline v0::parallel {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LossScale::State, scale, passed, overflows)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(OutlierFilter::State, losses, norms, skipped)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GradientNoise::State, steps, signal, noise)

StepGuards::StepGuards(const StepGuardOptions& options)
    : not_finite_(options.skip_not_finite, options.skip_key) {
  if (options.loss_scale) loss_scale_.emplace(*options.loss_scale);
  if (options.outliers.limit != 0) outliers_.emplace(options.outliers);
  if (options.noise) noise_.emplace(*options.noise);
}

void StepGuards::enter(const Refusal& refusal, LocalVote& vote) const {
  if (refusal.exit_code == Refusal::kNotFinite && loss_scale_ && loss_scale_->backs_off()) {
    vote.overflowed(refusal.reason);
  } else {
    vote.refuse(refusal);
  }
}

// Every rank has this verdict and the same scale.
std::string StepGuards::back_off(const Verdict& verdict) {
  const double before = loss_scale_->scale();
  loss_scale_->overflowed();
  return "on rank " + std::to_string(verdict.refusing_rank) + " " + verdict.reason +
         "; the loss scale falls from " + std::to_string(std::llround(before)) + " to " +
         std::to_string(std::llround(loss_scale_->scale()));
}

void StepGuards::report(StepResult& result) const {
  result.skipped_steps = skipped_steps();
  if (loss_scale_) {
    result.loss_scale = loss_scale_->scale();
    result.overflows = loss_scale_->state.overflows;
  }
  if (noise_ && result.skipped.empty() && result.count > 0) result.noise_scale = noise_->scale();
}

void StepGuards::save(nlohmann::json& into) const {
  if (not_finite_.left_out() > 0) into["not_finite"] = not_finite_.left_out();
  if (loss_scale_) into["loss_scale"] = loss_scale_->state;
  if (outliers_) into["outliers"] = outliers_->state;
  if (noise_) into["noise"] = noise_->state;
}

void StepGuards::restore(const nlohmann::json& saved) {
  if (saved.contains("not_finite")) not_finite_.restore(saved_count(saved, "not_finite"));
  if (loss_scale_ && saved.contains("loss_scale"))
    loss_scale_->restore(saved["loss_scale"].get<LossScale::State>());
  if (outliers_ && saved.contains("outliers")) {
    OutlierFilter::State state = saved["outliers"];
    if (state.losses.size() != state.norms.size())
      throw CheckpointError("the checkpoint's outliers have " +
                                std::to_string(state.losses.size()) + " losses and " +
                                std::to_string(state.norms.size()) + " norms",
                            {.operation = "resume", .advice = "Use another checkpoint."});
    state.skipped = saved_count(saved["outliers"], "skipped");
    outliers_->state = std::move(state);
  }
  if (noise_ && saved.contains("noise")) saved["noise"].get_to(noise_->state);
}

}  // namespace trireme::inline v0::parallel
