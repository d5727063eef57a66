// WeightAverage: an exponential moving average of the master weights that this rank owns, cut as
// they are: average += (1 - decay) (weight - average) after every update (Polyak & Juditsky 1992's
// averaging with a window, as Ema for a module of one's own).
//
// Element by element, so it has the same bits however parameters are cut. One copy of the owned
// masters in their type. Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "trireme/optim/optimizer.h"
#include "trireme/optim/owned_slice.h"
#include "trireme/tensor/state.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

class WeightAverage {
 public:
  /// Starts with the weights as they are. ConfigError for a decay outside [0, 1).
  WeightAverage(double decay, std::span<const optim::OwnedSlice> slices);
  void update(std::span<const optim::OwnedSlice> slices);
  /// The weights and their averages change places.
  void swap(std::span<const optim::OwnedSlice> slices);
  /// Per parameter, "NAME" as the weights'.
  std::vector<NamedShard> state(std::span<const optim::OwnedSlice> slices,
                                std::span<const optim::ParameterInfo> parameters) const;
  const std::vector<at::Tensor>& memory() const noexcept { return averages_; }

 private:
  double decay_;
  std::vector<at::Tensor> averages_;  // per slice, flat
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
