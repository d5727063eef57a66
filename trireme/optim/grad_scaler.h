// GradScaler: loss scaling for fp16, as torch.amp.GradScaler; LibTorch has none.
//
//     scaler.scale(loss).backward();  scaler.step(adam);  scaler.update();  adam.zero_grad();
//
// Usable alone, with any torch::optim optimizer, on any device. Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace torch::optim {
class Optimizer;
}

namespace trireme::inline v0 {

struct GradScalerOptions {
  double initial_scale = 65536;
  double growth = 2, backoff = 0.5;
  std::int64_t growth_interval = 2000;  // steps without an overflow until the scale grows
};

class GradScaler {
 public:
  explicit GradScaler(GradScalerOptions options = {});
  at::Tensor scale(const at::Tensor& loss) const;
  /// Divides the optimizer's gradients by the scale. Call it before clipping, once per step; step()
  /// does it otherwise. Throws ConfigError when called twice before update().
  void unscale(torch::optim::Optimizer& optimizer);
  /// Calls optimizer.step() unless a gradient holds an infinity or a NaN. Returns whether it did.
  bool step(torch::optim::Optimizer& optimizer);
  /// After step(): backs off after an overflow, grows after growth_interval steps without one.
  void update();

  double current_scale() const noexcept { return scale_; }
  std::int64_t growth_tracker() const noexcept { return good_; }
  std::int64_t skipped() const noexcept { return skipped_; }

 private:
  GradScalerOptions options_;
  double scale_;
  std::int64_t good_ = 0, skipped_ = 0;
  bool unscaled_ = false, overflow_ = false;
};

}  // namespace trireme::inline v0
