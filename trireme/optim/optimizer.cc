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
  ElementwiseOptimizer(const Options& options, Spread spread)
      : SliceOptimizer(options), options_(options), spread_(std::move(spread)) {}
  std::string_view name() const noexcept override { return Options::kName; }

  void update(double learning_rate, double scale) override {
    ++step_count_;
    for (std::size_t i = 0; i < slices_.size();) {
      const auto rule = options_.rule({.count = step_count_,
                                       .rate = learning_rate * numbers_[i].rate_factor,
                                       .weight_decay = numbers_[i].weight_decay,
                                       .scale = scale});
      if (by_tensors(slices_[i])) {
        i = update_alike(rule, i);
        continue;
      }
      in_type(slices_[i], [&]<class T>(T) {
        const Part<T> all = whole<T>(slices_[i]);
        spread_(all.count, [&](std::size_t begin, std::size_t end) {
          const Part<T> part = piece(all, begin, end);
          T* updated[rule.kShape.both] = {part.weight};
          for (std::size_t k = 0; k < state_names_.size(); ++k)
            if (T* state = state_of<T>(i, k)) updated[k + 1] = state + begin;
          kernel::apply(rule, &part.gradient, updated, part.compute, part.count);
        });
      });
      ++i;
    }
  }

 private:
  // Updates the slices from `first` on that have its numbers together, some tens of megabytes at a
  // time, since the rule's intermediate values are as large. Returns the first that was not.
  template <class Rule>
  std::size_t update_alike(const Rule& rule, std::size_t first) {
    constexpr std::int64_t kElements = 16 << 20;
    std::array<TensorList, Rule::kShape.arrays()> arrays;
    std::int64_t elements = 0;
    std::size_t end = first;
    for (; end < slices_.size() && numbers_[end] == numbers_[first]; ++end) {
      if (end > first && (elements + slices_[end].size() > kElements || state_.on_host())) break;
      elements += slices_[end].size();
      if (slices_[end].size() == 0) continue;
      arrays[0].all.push_back(gradient_of(slices_[end]));
      arrays[1].all.push_back(weight_of(slices_[end]));
      const std::span<const at::Tensor> state = state_.fetch(end);
      for (std::size_t k = 0; k < state.size(); ++k) arrays[k + 2].all.push_back(state[k]);
    }
    if (elements > 0) apply_by_lists(rule, arrays);
    for (std::size_t i = first; i < end; ++i)
      if (slices_[i].size() > 0) state_.store(i);
    return end;
  }

  template <class T>
  static Part<T> piece(const Part<T>& all, std::size_t begin, std::size_t end) {
    return {all.begin + static_cast<std::int64_t>(begin), end - begin, all.gradient + begin,
            all.weight + begin, all.compute != nullptr ? all.compute + begin : nullptr};
  }

  Options options_;
  const Spread spread_;
};

// Calls visit(options) with default options of every optimizer.
template <class Visit>
void each_optimizer(Visit visit) {
  [&]<class... Options>(const std::variant<Options...>*) {
    (visit(Options{}), ...);
  }(static_cast<const OptimizerOptions*>(nullptr));
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Spread spread) {
  const auto make = [&]<class Options>(const Options& own) -> std::unique_ptr<Optimizer> {
    if constexpr (Elementwise<Options>) {
      return std::make_unique<ElementwiseOptimizer<Options>>(own, std::move(spread));
    } else {
      return make_summing(own);
    }
  };
  return std::visit(make, options);
}

std::string_view name_of(const OptimizerOptions& options) {
  return std::visit([](const auto& own) { return own.kName; }, options);
}

OptimizerKeys keys_of(const OptimizerOptions& options) {
  return std::visit([](const auto& own) { return own.keys(); }, options);
}

double learning_rate_of(const OptimizerOptions& options) {
  return std::visit([](const auto& own) { return own.learning_rate; }, options);
}

double momentum_of(const OptimizerOptions& options) {
  return std::visit(
      [](const auto& own) -> double {
        if constexpr (requires { own.beta1; })
          return own.beta1;
        else if constexpr (requires { own.momentum; })
          return own.momentum;
        else
          return 0;
      },
      options);
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
