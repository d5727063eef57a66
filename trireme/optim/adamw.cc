#include <cmath>

#include "trireme/kernel/optimizer.h"
#include "trireme/optim/slice_optimizer.h"

namespace trireme::inline v0::optim {
namespace {

class AdamWOptimizer final : public SliceOptimizer {
 public:
  explicit AdamWOptimizer(const AdamW& options)
      : SliceOptimizer(options.learning_rate, options.weight_decay, options.groups,
                       {"exp_avg", "exp_avg_sq"}),
        options_(options) {}
  std::string_view name() const noexcept override { return "adamw"; }

  void update(double learning_rate, double scale) override {
    const double step = static_cast<double>(++step_count_);
    const double bias1 = 1.0 - std::pow(options_.beta1, step);
    const double bias2 = 1.0 - std::pow(options_.beta2, step);
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const double rate = learning_rate * numbers_[i].rate_factor;
      const kernel::AdamWNumbers numbers{.scale = scale,
                                         .decay = 1.0 - rate * numbers_[i].weight_decay,
                                         .one_minus_beta1 = 1.0 - options_.beta1,
                                         .beta2 = options_.beta2,
                                         .one_minus_beta2 = 1.0 - options_.beta2,
                                         .step_size = rate / bias1,
                                         .sqrt_bias2 = std::sqrt(bias2),
                                         .epsilon = options_.epsilon};
      in_type(slices_[i], [&]<class T>(T) {
        const Part<T> part = whole<T>(slices_[i]);
        kernel::adamw(numbers, part.gradient, part.weight, state_of<T>(i, 0), state_of<T>(i, 1),
                      part.compute, part.count);
      });
    }
  }

 private:
  AdamW options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const AdamW& options) {
  return std::make_unique<AdamWOptimizer>(options);
}

}  // namespace trireme::inline v0::optim
