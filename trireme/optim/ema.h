// Ema: an exponential moving average of a module's weights, for evaluation and saving.
//
// Usable alone, with any optimizer and loop. Holds one copy of the parameters, and of the buffers
// as they are (running statistics are averages already). Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace trireme {
inline namespace v0 {

class Ema {
 public:
  /// Starts with the module's weights. `decay` in [0, 1) (ConfigError otherwise), as torch's
  /// AveragedModel with get_ema_multi_avg_fn(decay), which starts with the first update's weights.
  Ema(const torch::nn::Module& module, double decay);
  /// average += (1 - decay) (weight - average); buffers are copied. After every optimizer step.
  void update();
  std::int64_t updates() const noexcept { return updates_; }

  /// While it lives, the module has the averaged weights: evaluate or save_weights(). Then its own
  /// come back, bit for bit. No update() meanwhile (TRIREME_CHECK).
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

}  // namespace v0
}  // namespace trireme
