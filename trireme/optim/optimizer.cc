#include "trireme/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/kernel/cuda/update.h"
#include "trireme/kernel/optimizers/apply.h"
#include "trireme/optim/slice_optimizer.h"
#include "trireme/optim/tensor_rule.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/devices/gpu_kernels.h"

namespace trireme::inline v0::optim {
namespace {

template <std::size_t kArrays>
std::vector<kernel::cuda::UpdateSlice> slices_of(const std::array<TensorList, kArrays>& arrays) {
  std::vector<kernel::cuda::UpdateSlice> slices(arrays[0].all.size());
  for (std::size_t k = 0; k < kArrays; ++k)
    for (std::size_t i = 0; i < arrays[k].all.size(); ++i)
      slices[i].arrays[k] = arrays[k].all[i].data_ptr();
  for (std::size_t i = 0; i < slices.size(); ++i)
    slices[i].count = static_cast<std::uint64_t>(arrays[0].all[i].numel());
  return slices;
}

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
    for (const std::vector<std::size_t>& group : together()) {
      const OwnedSlice& first = slices_[group.front()];
      const Rule rule = rule_of(group.front(), learning_rate, scale);
      if (by_tensors(first)) {
        update_on_device(rule, group);
      } else {
        update_on_host(rule, group.front(), 0, first.size(), first.gradient);
      }
    }
  }

  PartUpdate begin_parts(double learning_rate, double scale) override {
    ++step_count_;
    std::vector<Rule> rules;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      TRIREME_CHECK(!by_tensors(slices_[i]));
      rules.push_back(rule_of(i, learning_rate, scale));
    }
    return [this, rules = std::move(rules)](std::size_t slice, std::size_t begin, std::size_t end,
                                            const void* gradient) {
      update_on_host(rules[slice], slice, begin, end, gradient);
    };
  }

 private:
  using Rule = decltype(std::declval<Options>().rule(kernel::StepNumbers{}));

  Rule rule_of(std::size_t slice, double learning_rate, double scale) const {
    const ParameterNumbers& numbers = numbers_[slice];
    return options_.rule({.count = step_count_,
                          .rate = learning_rate * numbers.rate_factor,
                          .weight_decay = numbers.weight_decay,
                          .scale = scale});
  }

  // The slices that are updated by one call: those of a device that have the same numbers, some tens
  // of megabytes of them, since intermediate values of LibTorch's operations are as large. What is on
  // the host comes by ascending slice.
  std::vector<std::vector<std::size_t>> together() const {
    constexpr std::int64_t kElements = 16 << 20;
    struct Open {
      std::size_t group, slice;
      std::int64_t elements;
    };
    std::vector<std::vector<std::size_t>> groups;
    std::vector<Open> open;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const std::int64_t size = slices_[i].size();
      const bool alone = !by_tensors(slices_[i]) || state_.moves();
      const auto alike = std::find_if(open.begin(), open.end(), [&](const Open& one) {
        const OwnedSlice &with = slices_[one.slice], &slice = slices_[i];
        return numbers_[one.slice] == numbers_[i] && with.device == slice.device &&
               with.master_dtype == slice.master_dtype;
      });
      if (!alone && alike != open.end() && alike->elements + size <= kElements) {
        groups[alike->group].push_back(i);
        alike->elements += size;
        continue;
      }
      groups.push_back({i});
      if (alone) continue;
      if (alike != open.end()) open.erase(alike);
      open.push_back({groups.size() - 1, i, size});
    }
    return groups;
  }

  void update_on_host(const Rule& rule, std::size_t slice, std::size_t begin, std::size_t end,
                      const void* gradient) const {
    in_type(slices_[slice], [&]<class T>(T) {
      const SliceRange<T> all = whole<T>(slices_[slice]);
      const T* const from = static_cast<const T*>(gradient);
      T* updated[Rule::kShape.both] = {all.weight + begin};
      for (std::size_t k = 0; k < state_names_.size(); ++k)
        if (T* state = state_of<T>(slice, k)) updated[k + 1] = state + begin;
      kernel::apply(rule, &from, updated, all.compute != nullptr ? all.compute + begin : nullptr,
                    end - begin);
    });
  }

  void update_on_device(const Rule& rule, const std::vector<std::size_t>& group) {
    const OwnedSlice& first = slices_[group.front()];
    std::array<TensorList, Rule::kShape.arrays()> arrays;
    for (const std::size_t i : group) {
      if (slices_[i].size() == 0) continue;
      const std::span<const at::Tensor> state = state_.fetch(i);
      arrays[0].all.push_back(gradient_of(slices_[i]));
      arrays[1].all.push_back(state_.weight(i));
      for (std::size_t k = 0; k < state.size(); ++k) arrays[k + 2].all.push_back(state[k]);
    }
    if (arrays[0].all.empty()) return;
    if (const tensor::GpuKernels* const kernels = tensor::GpuKernels::of(first.device)) {
      for (const auto& call : kernel::cuda::update_arguments(rule, slices_of(arrays)))
        kernels->run("update", first.master_dtype, call, call.num_chunks);
    } else {
      apply_by_lists(rule, arrays);
    }
    for (const std::size_t i : group) {
      if (slices_[i].size() == 0) continue;
      state_.store(i);
      state_.store_weight(i);
    }
  }

  Options options_;
};

// Throws ConfigError for what the optimizer cannot train with.
struct NumberCheck {
  std::string_view optimizer;

  void require(bool fits, const std::string& what, const char* advice) const {
    if (!fits)
      throw ConfigError(std::string(optimizer) + " cannot train with " + what,
                        {.operation = "config", .advice = advice});
  }
  void number(const char* name, double value, bool fits, const char* advice) const {
    require(fits, std::string(name) + " = " + number_text(value), advice);
  }
  void from_zero(const char* name, double value) const {
    number(name, value, std::isfinite(value) && value >= 0, "Use a finite number from 0 on.");
  }
};

template <class Options>
void check_numbers_of(const Options& own) {
  const NumberCheck check{Options::kName};
  check.from_zero("learning_rate", own.learning_rate);
  check.from_zero("weight_decay", own.weight_decay);
  for (const ParameterGroup& group : own.groups) {
    check.from_zero("a group's rate_factor", group.rate_factor);
    check.from_zero("a group's weight_decay", group.weight_decay.value_or(0));
  }
  if constexpr (requires { own.epsilon; }) check.from_zero("epsilon", own.epsilon);
  if constexpr (requires { own.beta1; }) {
    // A bias correction divides by 1 - beta^step.
    constexpr bool kCorrects = !requires { Options::kNoBiasCorrection; };
    for (const double beta : {own.beta1, own.beta2})
      check.require(beta >= 0 && (kCorrects ? beta < 1 : beta <= 1),
                    "a beta of " + number_text(beta),
                    kCorrects ? "Use betas from 0 to below 1." : "Use betas from 0 to 1.");
  }
  if constexpr (requires { own.check(check); }) own.check(check);
}

// Calls visit(options) with default options of every optimizer.
template <class Visit>
void each_optimizer(Visit visit) {
  [&]<class... Options>(const std::variant<Options...>*) {
    (visit(Options{}), ...);
  }(static_cast<const OptimizerOptions*>(nullptr));
}

}  // namespace

void check_numbers(const OptimizerOptions& options) {
  std::visit([](const auto& own) { check_numbers_of(own); }, options);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  check_numbers(options);
  const auto make = []<class Options>(const Options& own) -> std::unique_ptr<Optimizer> {
    if constexpr (Elementwise<Options>) {
      return std::make_unique<ElementwiseOptimizer<Options>>(own);
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
  OptimizerKeys keys;
  std::visit([&](const auto& own) { own.numbers(keys) = own.numbers(own); }, options);
  return keys;
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
  each_optimizer([&](auto one) {
    if (name != one.kName) return;
    one.numbers(one) = one.numbers(keys);
    found = one;
  });
  TRIREME_CHECK(found.has_value());
  check_numbers(*found);
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

}  // namespace trireme::inline v0::optim
