// StagePasses: forward and backward passes of one stage, of several micro-batches at a time.
//
// Values from the stage before are cut off from their graph: the gradients that reach them are
// caught, with the strides that autograd gave them, and go back as a parcel. For a value that is
// passed on, the later stages' gradient is added before that of its readers here, as in one
// process, so the sum has the same bits. One thread at a time; throws what blocks throw.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "trireme/pipeline/parcel.h"
#include "trireme/placement/stage.h"

namespace trireme::inline v0::parallel {

/// `loss`, if it is a scalar under autograd; else ConfigError.
at::Tensor checked_loss(at::Tensor loss);

class StagePasses {
 public:
  /// Maps the last block's value and the micro-batch to the summed loss.
  using SumLoss = std::function<at::Tensor(const models::Value&, const MicroBatch&)>;

  explicit StagePasses(Stage& stage);
  ~StagePasses();
  StagePasses(StagePasses&&) noexcept;

  /// Under autograd, keeps the micro-batch's graph until backward(). `around` is for every block.
  Parcel forward(std::uint32_t number, const MicroBatch& micro, std::int64_t step, Parcel in,
                 const Stage::Enter& around);
  /// On the last stage: the summed loss, detached; its graph is kept, too.
  at::Tensor forward_loss(std::uint32_t number, const MicroBatch& micro, std::int64_t step,
                          Parcel in, const SumLoss& loss, const Stage::Enter& around);
  /// On the last stage: its value, without keeping a graph.
  models::Value forward_value(const MicroBatch& micro, std::int64_t step, Parcel in,
                              const Stage::Enter& around);
  /// Runs micro-batch `number` back; `gradients` is empty at the last stage. Returns the gradients
  /// of the inputs; parameters' go to their hooks.
  Parcel backward(std::uint32_t number, const Parcel& gradients);
  /// Drops the graphs of the step.
  void drop();

 private:
  struct Kept;
  Values enter(Parcel in, Kept* kept) const;

  Stage& stage_;
  std::map<std::uint32_t, Kept> kept_;
};

}  // namespace trireme::inline v0::parallel
