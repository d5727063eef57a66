// GradientFeed: hands a stage's gradients, one micro-batch after the other, from autograd's hooks
// to its ParameterSync, and to an observer that sees each gradient before it is summed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "trireme/sync/parameter_sync.h"

namespace trireme::inline v0::parallel {

class GradientObserver {
 public:
  virtual ~GradientObserver() = default;
  /// The gradients that follow, times `weight`, are the true ones of this micro-batch.
  virtual void begin_micro(double weight) = 0;
  virtual void gradient(std::size_t leaf, const at::Tensor& gradient) = 0;
  /// `count`: items of the micro-batch; 0: it failed, and the step will be refused.
  virtual void end_micro(std::int64_t count) = 0;
};

class GradientFeed {
 public:
  /// `uses`: of each leaf that has a hook. `sync` and `observer` (may be null) must outlive this.
  GradientFeed(ParameterSync& sync, std::vector<ParameterUse> uses, GradientObserver* observer)
      : sync_(sync), uses_(std::move(uses)), observer_(observer) {}

  /// As ParameterSync::begin_micro().
  void begin(std::uint32_t microbatch, double weight) {
    microbatch_ = microbatch;
    sync_.begin_micro(microbatch, weight);
    if (observer_ != nullptr) observer_->begin_micro(weight);
  }
  void take(std::size_t leaf, at::Tensor gradient) {
    if (observer_ != nullptr) observer_->gradient(leaf, gradient);
    sync_.gradient(uses_[leaf], microbatch_, std::move(gradient));
  }
  void end(std::int64_t count) {
    sync_.end_micro();
    if (observer_ != nullptr) observer_->end_micro(count);
  }

 private:
  ParameterSync& sync_;
  std::vector<ParameterUse> uses_;
  GradientObserver* observer_;
  std::uint32_t microbatch_ = 0;
};

}  // namespace trireme::inline v0::parallel
