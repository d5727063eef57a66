#include "trireme/sync/gathers/pass_uses.h"

#include "trireme/base/check.h"

namespace trireme::inline v0::parallel {
namespace {

using plan::ActionKind;

class Uses {
 public:
  explicit Uses(std::span<const StageBlocks> stages) : stages_(stages) {}

  void add(ActionKind pass, int stage, std::uint32_t microbatch) {
    std::uint32_t part = 0;
    while (part < stages_.size() && stages_[part].stage != stage) ++part;
    TRIREME_CHECK(part < stages_.size());
    const Phase phase = phase_of(pass);
    const std::uint32_t blocks = stages_[part].blocks;
    for (std::uint32_t i = 0; i < blocks; ++i)
      all.push_back(
          {.block = static_cast<std::uint32_t>(phase == Phase::Forward ? i : blocks - 1 - i),
           .microbatch = microbatch,
           .phase = phase,
           .part = part});
  }

  std::vector<Use> all;

 private:
  std::span<const StageBlocks> stages_;
};

}  // namespace

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
  Uses uses(stages);
  for (const plan::Action& action : order) {
    if (!is_pass(action.kind)) continue;
    if (action.kind == ActionKind::ForwardBackward) {
      uses.add(ActionKind::Forward, action.stage, action.microbatch);
      uses.add(ActionKind::Backward, action.backward_stage, action.backward_microbatch);
    } else {
      uses.add(action.kind, action.stage, action.microbatch);
    }
  }
  return std::move(uses.all);
}

}  // namespace trireme::inline v0::parallel
