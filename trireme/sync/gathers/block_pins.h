// BlockPins: holds the weights of a stage's blocks in memory while a block needs them: during its
// forward pass, and again from when backward reaches the block until it reaches the block before.
// One pass at a time, on one thread.
#pragma once

#include "trireme/placement/stage.h"
#include "trireme/sync/parameter_sync.h"

namespace trireme::inline v0::parallel {

class BlockPins {
 public:
  /// `part`: Use::part of all uses. `sync` must outlive this object and the result of enter().
  explicit BlockPins(ParameterSync& sync, std::uint32_t part = 0) : sync_(sync), part_(part) {}
  BlockPins(const BlockPins&) = delete;

  /// Starts a pass of `microbatch`. `backward` is the phase of its backward pass, if there is one:
  /// Phase::Backward or Phase::Input.
  void begin(std::uint32_t microbatch, Phase backward = Phase::Backward);
  /// The callback for Stage::forward(). With autograd off it pins nothing for backward.
  Stage::Enter enter();
  /// Backward reaches the block.
  void enter_backward(std::uint32_t block);
  /// Starts the block's separate pass for weight gradients, which does not read the weights.
  void weight_gradients(std::uint32_t block) { sync_.acquire(use(block, Phase::Weight)); }
  /// Ends the pass: releases the last block of backward, after which no other block comes.
  void end() { backward_pin_ = {}; }

 private:
  Use use(std::uint32_t block, Phase phase) const {
    return {.block = block, .microbatch = microbatch_, .phase = phase, .part = part_};
  }

  ParameterSync& sync_;
  std::uint32_t part_;
  std::uint32_t microbatch_ = 0;
  Phase backward_ = Phase::Backward;
  Pin backward_pin_;
};

}  // namespace trireme::inline v0::parallel
