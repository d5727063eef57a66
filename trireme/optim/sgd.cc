#include "trireme/kernel/optimizer.h"
#include "trireme/optim/slice_optimizer.h"

namespace trireme::inline v0::optim {
namespace {

class SgdOptimizer final : public SliceOptimizer {
 public:
  explicit SgdOptimizer(const Sgd& options)
      : SliceOptimizer(options.learning_rate, options.weight_decay, options.groups,
                       options.momentum != 0 ? std::vector<std::string>{"momentum_buffer"}
                                             : std::vector<std::string>{}),
        options_(options) {}
  std::string_view name() const noexcept override { return "sgd"; }

  void update(double learning_rate, double scale) override {
    const bool first = step_count_++ == 0;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const kernel::SgdNumbers numbers{.scale = scale,
                                       .weight_decay = numbers_[i].weight_decay,
                                       .momentum = options_.momentum,
                                       .one_minus_dampening = 1.0 - options_.dampening,
                                       .rate = learning_rate * numbers_[i].rate_factor,
                                       .nesterov = options_.nesterov,
                                       .first = first};
      in_type(slices_[i], [&]<class T>(T) {
        const Part<T> part = whole<T>(slices_[i]);
        T* momentum = state_names_.empty() ? nullptr : state_of<T>(i, 0);
        kernel::sgd(numbers, part.gradient, part.weight, momentum, part.compute, part.count);
      });
    }
  }

 private:
  Sgd options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const Sgd& options) {
  return std::make_unique<SgdOptimizer>(options);
}

}  // namespace trireme::inline v0::optim
