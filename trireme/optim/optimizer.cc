#include "trireme/optim/optimizer.h"

#include <algorithm>
#include <optional>

#include "trireme/base/check.h"
#include "trireme/kernel/optimizers/apply.h"
#include "trireme/optim/slice_optimizer.h"
#include "trireme/optim/tensor_rule.h"
#include "trireme/tensor/flat_math.h"

namespace trireme::inline v0::optim {
namespace {

// An optimizer whose update is one rule for every element.
template <class Options>
concept Elementwise = requires(const Options& options) {
  options.rule(kernel::StepNumbers{});
};

template <class Options>
class ElementwiseOptimizer final : public SliceOptimizer {
 public:
  explicit ElementwiseOptimizer(const Options& options)
      : SliceOptimizer(options), options_(options) {}
  std::string_view name() const noexcept override { return Options::kName; }

  void update(double learning_rate, double scale) override {
    ++step_count_;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const auto rule = options_.rule({.count = step_count_,
                                       .rate = learning_rate * numbers_[i].rate_factor,
                                       .weight_decay = numbers_[i].weight_decay,
                                       .scale = scale});
      if (slices_[i].size() == 0) continue;
      if (by_tensors(slices_[i])) {
        std::array<at::Tensor, rule.kShape.arrays()> arrays{gradient_of(slices_[i]),
                                                            weight_of(slices_[i])};
        std::ranges::copy(state_.fetch(i), arrays.begin() + 2);
        apply_by_tensors(rule, arrays);
        state_.store(i);
        continue;
      }
      in_type(slices_[i], [&]<class T>(T) {
        const Part<T> part = whole<T>(slices_[i]);
        T* updated[rule.kShape.both] = {part.weight};
        for (std::size_t k = 0; k < state_names_.size(); ++k) updated[k + 1] = state_of<T>(i, k);
        kernel::apply(rule, &part.gradient, updated, part.compute, part.count);
      });
    }
  }

 private:
  Options options_;
};

// Calls visit(options) with default options of every optimizer.
template <class Visit>
void each_optimizer(Visit visit) {
  [&]<class... Options>(const std::variant<Options...>*) {
    (visit(Options{}), ...);
  }(static_cast<const OptimizerOptions*>(nullptr));
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  const auto make = []<class Options>(const Options& own) -> std::unique_ptr<Optimizer> {
    if constexpr (Elementwise<Options>) {
      return std::make_unique<ElementwiseOptimizer<Options>>(own);
    } else {
      return make_summing(own);
    }
  };
  return std::visit(make, options);
}

double learning_rate_of(const OptimizerOptions& options) {
  return std::visit([](const auto& own) { return own.learning_rate; }, options);
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  each_optimizer([&](const auto& one) { names.emplace_back(one.kName); });
  return names;
}

OptimizerOptions optimizer_of(std::string_view name, const OptimizerKeys& keys) {
  std::optional<OptimizerOptions> found;
  each_optimizer([&]<class Options>(const Options&) {
    if (name == Options::kName) found = Options::from(keys);
  });
  TRIREME_CHECK(found.has_value());
  return *found;
}

bool sums_over_parameters(std::string_view name) {
  bool sums = false;
  each_optimizer([&]<class Options>(const Options&) {
    if (name == Options::kName) sums = !Elementwise<Options>;
  });
  return sums;
}

int moments_per_element(const OptimizerOptions& options) {
  return std::visit(
      [](const auto& own) {
        if constexpr (requires { own.kMoments; }) return own.kMoments;
        return static_cast<int>(own.state().size());
      },
      options);
}

void chunk_squares(const OwnedSlice& slice, std::vector<double>& out) {
  const tensor::FlatRange range{slice.gradient, slice.master_dtype,
                                static_cast<std::size_t>(slice.size())};
  const std::vector<double> squares = tensor::flat_math(slice.device).squares({&range, 1});
  out.insert(out.end(), squares.begin(), squares.end());
}

}  // namespace trireme::inline v0::optim
