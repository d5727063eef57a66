// Ema: an exponential moving average of a module's weights, for evaluation and saving.
//
// Usable alone, with any optimizer and loop. Holds one averaged copy of the parameters and a plain
// copy of the buffers (running statistics are averages already). Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace trireme::inline v0 {

class Ema {
 public:
  /// Starts with the module's weights. `decay` in [0, 1), else ConfigError. As torch's
  /// AveragedModel with get_ema_multi_avg_fn(decay), except that torch starts with the weights of
  /// the first update.
  Ema(const torch::nn::Module& module, double decay);
  /// average += (1 - decay) (weight - average); buffers are copied. Call it after each optimizer
  /// step.
  void update();
  std::int64_t updates() const noexcept { return updates_; }

  /// While it lives, the module has the averaged weights, for evaluation or save_weights().
  /// Afterwards its own weights are back, bit for bit. update() meanwhile is a CheckFailure.
  class Swap {
   public:
    explicit Swap(Ema& ema);
    ~Swap();
    Swap(const Swap&) = delete;
    Swap& operator=(const Swap&) = delete;

   private:
    Ema& ema_;
  };

 private:
  void swap();
  struct Pair {
    at::Tensor weight, average;
    bool averaged = true;  // else copied: a buffer, or integers
  };
  double decay_;
  std::int64_t updates_ = 0;
  bool swapped_ = false;
  std::vector<Pair> pairs_;
};

}  // namespace trireme::inline v0
