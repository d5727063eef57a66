// BlockPins: around a stage's blocks it holds their weights: while a block runs forward, and again
// from where backward comes to it until backward comes to the block before. One pass at a time, on
// one thread.
#pragma once

#include "trireme/parallel/data/parameter_sync.h"
#include "trireme/parallel/pipeline/stage.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

class BlockPins {
 public:
  /// `part`: of the uses. `sync` outlives it, and what enter() gave.
  explicit BlockPins(ParameterSync& sync, std::uint32_t part = 0) : sync_(sync), part_(part) {}
  BlockPins(const BlockPins&) = delete;

  /// The pass that begins is `microbatch`'s; backward, if it comes to a block, is `backward`:
  /// Phase::Backward or Phase::Input.
  void begin(std::uint32_t microbatch, Phase backward = Phase::Backward);
  /// For Stage::forward(). Without autograd there is no backward pass.
  Stage::Enter enter();
  /// The gradients of this block's weights come now, in a pass of their own, which needs none.
  void weight_gradients(std::uint32_t block) { sync_.acquire(use(block, Phase::Weight)); }
  /// The pass is over: backward has no block after its last.
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

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
