// StagePasses: forward and backward passes of one stage, of several micro-batches at a time.
//
// What comes from the stage before is cut off from its graph: gradients that reach it are caught,
// with the strides that autograd gave them, and go back as a parcel. A value that is handed on gets
// the later stages' gradient before that of its readers here, which is the order of one process: so
// the sum has the same bits. One thread at a time; what blocks throw comes out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "trireme/parallel/pipeline/parcel.h"
#include "trireme/parallel/pipeline/stage.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

class StagePasses {
 public:
  /// The last block's value and the micro-batch -> the summed loss.
  using SumLoss = std::function<at::Tensor(const models::Value&, const MicroBatch&)>;

  /// `enter`: around every block of a forward pass.
  explicit StagePasses(Stage& stage, Stage::Enter enter = {});
  ~StagePasses();
  StagePasses(StagePasses&&) noexcept;

  /// Under autograd it keeps the micro-batch's graph until backward().
  Parcel forward(std::uint32_t number, const MicroBatch& micro, std::int64_t step, Parcel in);
  /// Of the last stage: the summed loss, whose graph is kept, too.
  double forward_loss(std::uint32_t number, const MicroBatch& micro, std::int64_t step, Parcel in,
                      const SumLoss& loss);
  /// Of the last stage, no graph is kept.
  models::Value forward_value(const MicroBatch& micro, std::int64_t step, Parcel in);
  /// Runs micro-batch `number` back; `gradients` is empty at the last stage. The gradients of what
  /// came in; parameters' go to their hooks.
  Parcel backward(std::uint32_t number, const Parcel& gradients);
  /// Nothing of the step's graphs is needed any more.
  void drop();

 private:
  struct Kept;
  Values enter(Parcel in, Kept* kept) const;

  Stage& stage_;
  Stage::Enter enter_;
  std::map<std::uint32_t, Kept> kept_;
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
