#include "trireme/kernel/optimizer.h"
#include "trireme/optim/slice_optimizer.h"

namespace trireme::inline v0::optim {
namespace {

class LionOptimizer final : public SliceOptimizer {
 public:
  explicit LionOptimizer(const Lion& options)
      : SliceOptimizer(options.learning_rate, options.weight_decay, options.groups, {"exp_avg"}),
        options_(options) {}
  std::string_view name() const noexcept override { return "lion"; }

  void update(double learning_rate, double scale) override {
    ++step_count_;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const double rate = learning_rate * numbers_[i].rate_factor;
      const kernel::LionNumbers numbers{.scale = scale,
                                        .decay = 1.0 - rate * numbers_[i].weight_decay,
                                        .beta1 = options_.beta1,
                                        .one_minus_beta1 = 1.0 - options_.beta1,
                                        .beta2 = options_.beta2,
                                        .one_minus_beta2 = 1.0 - options_.beta2,
                                        .rate = rate};
      in_type(slices_[i], [&]<class T>(T) {
        const Part<T> part = whole<T>(slices_[i]);
        kernel::lion(numbers, part.gradient, part.weight, state_of<T>(i, 0), part.compute,
                     part.count);
      });
    }
  }

 private:
  Lion options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lion(const Lion& options) {
  return std::make_unique<LionOptimizer>(options);
}

}  // namespace trireme::inline v0::optim
