// WeightAverage: an exponential moving average of the master weights that this rank owns:
// average += (1 - decay) (weight - average) after every update (the averaging of Polyak & Juditsky
// 1992 with a window; Ema does the same for a user's own module).
//
// Works element by element, so the bits do not depend on how parameters are cut. Holds one copy of
// the owned masters in their type. Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "trireme/optim/optimizer.h"
#include "trireme/optim/owned_slice.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0::parallel {

class WeightAverage {
 public:
  /// Starts with the weights as they are. ConfigError for a decay outside [0, 1).
  WeightAverage(double decay, std::span<const optim::OwnedSlice> slices);
  void update(std::span<const optim::OwnedSlice> slices);
  /// Swaps the weights and their averages.
  void swap(std::span<const optim::OwnedSlice> slices);
  /// The averages, under the names of their parameters.
  std::vector<NamedShard> state(std::span<const optim::OwnedSlice> slices,
                                std::span<const optim::ParameterInfo> parameters) const;
  const std::vector<at::Tensor>& memory() const noexcept { return averages_; }
  /// Bytes of the averages in the host's memory: an average is where its weight is.
  std::int64_t bytes_on_host() const;

 private:
  double decay_;
  std::vector<at::Tensor> averages_;  // per slice, flat
};

}  // namespace trireme::inline v0::parallel
