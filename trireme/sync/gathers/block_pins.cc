#include "trireme/sync/gathers/block_pins.h"

#include <c10/core/GradMode.h>

#include <memory>

#include "trireme/sync/buckets/autograd_hooks.h"

namespace trireme::inline v0::parallel {

void BlockPins::begin(std::uint32_t microbatch, Phase backward) {
  microbatch_ = microbatch;
  backward_ = backward;
}

Stage::Enter BlockPins::enter() {
  return [this](std::size_t index) -> Stage::Leave {
    const auto block = static_cast<std::uint32_t>(index);
    auto pin = std::make_shared<Pin>(sync_.acquire(use(block, Phase::Forward)));
    const std::uint64_t first_node = next_node();
    return [this, block, pin, first_node](const models::Value& value) {
      *pin = {};
      if (!c10::GradMode::is_enabled()) return;
      before_backward(value, first_node, [this, block] { enter_backward(block); });
    };
  };
}

void BlockPins::enter_backward(std::uint32_t block) {
  backward_pin_ = {};
  backward_pin_ = sync_.acquire(use(block, backward_));
}

}  // namespace trireme::inline v0::parallel
