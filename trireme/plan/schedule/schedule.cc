#include "trireme/plan/schedule/schedule.h"

#include <algorithm>
#include <array>

namespace trireme::inline v0::plan {
namespace {

constexpr std::array<std::string_view, kActionKinds> kLetters = {"F",  "B",  "I",  "W",  "F",
                                                                 "SA", "RA", "SG", "RG", "RC"};

std::string pass_text(std::string_view letters, int stage, int microbatch) {
  return std::string(letters) + std::to_string(stage) + "." + std::to_string(microbatch);
}

}  // namespace

int Schedule::microbatches() const noexcept {
  int count = 0;
  for (const auto& actions : order) {
    for (const Action& action : actions) {
      count = std::max({count, action.microbatch + 1, action.backward_microbatch + 1});
    }
  }
  return count;
}

bool goes_forward(ActionKind kind) noexcept {
  return kind == ActionKind::Forward || kind == ActionKind::ForwardBackward;
}
bool goes_backward(ActionKind kind) noexcept {
  return kind == ActionKind::Backward || kind == ActionKind::BackwardInput ||
         kind == ActionKind::ForwardBackward;
}
bool adds_gradient(ActionKind kind) noexcept {
  return kind == ActionKind::Backward || kind == ActionKind::BackwardWeight ||
         kind == ActionKind::ForwardBackward;
}
bool is_pass(ActionKind kind) noexcept { return kind <= ActionKind::ForwardBackward; }
bool is_transfer(ActionKind kind) noexcept {
  return kind >= ActionKind::SendActivation && kind <= ActionKind::RecvGradient;
}

std::string text_of(const Action& action) {
  std::string text =
      pass_text(kLetters[static_cast<std::size_t>(action.kind)], action.stage, action.microbatch);
  if (action.kind == ActionKind::ForwardBackward) {
    text += "+" + pass_text("B", action.backward_stage, action.backward_microbatch);
  }
  return text;
}

std::string text_of(const Schedule& schedule) {
  std::string text;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    text += std::to_string(rank) + ":";
    for (const Action& action : schedule.order[static_cast<std::size_t>(rank)]) {
      text += " " + text_of(action);
    }
    text += "\n";
  }
  return text;
}

}  // namespace trireme::inline v0::plan
