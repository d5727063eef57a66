#include "trireme/train/report/step_figures.h"

#include "trireme/base/clock.h"

namespace trireme::inline v0::train {
namespace {

// The figures that are in both kinds of results.
observe::StepFigures common_figures(const auto& result) {
  observe::StepFigures figures{.loss = result.loss,
                               .learning_rate = result.learning_rate,
                               .gradient_norm = result.gradient_norm,
                               .last_rank = result.last_rank,
                               .behind_seconds = to_seconds(result.behind)};
  if (result.skipped_steps > 0) figures.skipped_steps = static_cast<long>(result.skipped_steps);
  return figures;
}

}  // namespace

observe::StepFigures figures_of(const StepResult& result) {
  observe::StepFigures figures = common_figures(result);
  if (result.communication) figures.communication_seconds = to_seconds(*result.communication);
  figures.noise_scale = result.noise_scale;
  figures.loss_scale = result.loss_scale;
  if (result.loss_scale) figures.overflows = static_cast<long>(result.overflows);
  return figures;
}

observe::StepFigures figures_of(const BatchResult& result) {
  observe::StepFigures figures = common_figures(result);
  figures.communication_seconds = to_seconds(result.communication);
  return figures;
}

}  // namespace trireme::inline v0::train
