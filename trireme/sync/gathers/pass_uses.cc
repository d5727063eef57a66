#include "trireme/sync/gathers/pass_uses.h"

#include <algorithm>

#include "trireme/base/check.h"

namespace trireme::inline v0::parallel {

using plan::ActionKind;

Phase phase_of(ActionKind pass) {
  switch (pass) {
    case ActionKind::Forward:
      return Phase::Forward;
    case ActionKind::Backward:
      return Phase::Backward;
    case ActionKind::BackwardInput:
      return Phase::Input;
    default:
      TRIREME_CHECK(pass == ActionKind::BackwardWeight);
      return Phase::Weight;
  }
}

std::vector<Use> uses_of(std::span<const plan::Action> order, std::span<const StageBlocks> stages) {
  std::vector<Use> uses;
  const auto add = [&](const plan::Action& pass) {
    const auto stage = std::ranges::find(stages, pass.stage, &StageBlocks::stage);
    TRIREME_CHECK(stage != stages.end());
    const Phase phase = phase_of(pass.kind);
    for (std::uint32_t i = 0; i < stage->blocks; ++i)
      uses.push_back({.block = phase == Phase::Forward ? i : stage->blocks - 1 - i,
                      .microbatch = static_cast<std::uint32_t>(pass.microbatch),
                      .phase = phase,
                      .part = static_cast<std::uint32_t>(stage - stages.begin())});
  };
  for (const plan::Action& action : order)
    if (is_pass(action.kind)) plan::each_pass(action, add);
  return uses;
}

}  // namespace trireme::inline v0::parallel
