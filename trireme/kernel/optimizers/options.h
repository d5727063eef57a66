// The options of all optimizers, which a program gives a Strategy: AdamW{.learning_rate = 6e-4}.
//
// Each struct has an optimizer's numbers with their defaults, its name, and the functions that the
// library calls; the header of the same name, such as adamw.h, defines these and the update.
// numbers() refers to the numbers in the struct itself, or to those of the same names in
// OptimizerKeys. Plain values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

namespace trireme::inline v0 {

/// Other numbers for the parameters whose name matches `match` ('*': any characters, '?': one). The
/// first matching group counts. A pattern that matches no parameter is a ConfigError.
struct ParameterGroup {
  std::string match;
  std::optional<double> weight_decay;  // none: the optimizer's, for matrices only
  double rate_factor = 1;              // factor on the learning rate
};

struct OptimizerKeys;  // rule.h
namespace kernel {
struct StepNumbers;
template <class... Rule>
struct RuleList;
struct AdagradRule;
struct AdamWRule;
struct AverageSquares;
struct FactoredDirection;
struct FtrlRule;
struct LambDirection;
struct LambMoments;
struct LionRule;
struct SgdRule;
}  // namespace kernel

/// Decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101), as torch.optim.AdamW.
struct AdamW {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
  std::vector<ParameterGroup> groups = {};

  static constexpr std::string_view kName = "adamw";
  static auto numbers(auto& in) {
    return std::tie(in.learning_rate, in.beta1, in.beta2, in.epsilon, in.weight_decay, in.groups);
  }
  std::vector<std::string> state() const;
  using Rules = kernel::RuleList<kernel::AdamWRule>;
  kernel::AdamWRule rule(const kernel::StepNumbers& step) const;
};

/// As torch.optim.SGD.
struct Sgd {
  double learning_rate = 1e-2;
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;
  double dampening = 0;
  std::vector<ParameterGroup> groups = {};

  static constexpr std::string_view kName = "sgd";
  static auto numbers(auto& in) {
    return std::tie(in.learning_rate, in.momentum, in.weight_decay, in.nesterov, in.dampening,
                    in.groups);
  }
  std::vector<std::string> state() const;
  using Rules = kernel::RuleList<kernel::SgdRule>;
  kernel::SgdRule rule(const kernel::StepNumbers& step) const;
};

/// Layer-wise rates for large batches (You et al. 2020, arXiv:1904.00962, algorithm 2, phi = id). A
/// parameter moves by rate x |w| / |u| along AdamW's direction u (decay included); if either norm
/// is 0, by the rate itself.
struct Lamb {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6, weight_decay = 0.01;
  std::vector<ParameterGroup> groups = {};

  static constexpr std::string_view kName = "lamb";
  static auto numbers(auto& in) {
    return std::tie(in.learning_rate, in.beta1, in.beta2, in.epsilon, in.weight_decay, in.groups);
  }
  std::vector<std::string> state() const;
  using Rules = kernel::RuleList<kernel::LambMoments, kernel::LambDirection>;
};

/// Factored mean squares (Shazeer & Stern 2018, arXiv:1804.04235), as torch.optim.Adafactor: a
/// matrix [R, C] has R + C numbers of state. The learning rate bounds the relative step.
struct Adafactor {
  double learning_rate = 1e-2;
  double beta2_decay = -0.8;     // weight of the new mean square at step t: t^beta2_decay
  double epsilon = 0;            // smallest root mean square of a row; 0: the type's epsilon
  double smallest_scale = 1e-3;  // smallest size of a parameter that its step is scaled by
  double clip = 1.0;             // largest root mean square of an update, before the rate
  double weight_decay = 0;
  std::vector<ParameterGroup> groups = {};

  static constexpr std::string_view kName = "adafactor";
  static constexpr int kMoments = 0;  // per element of a matrix
  static auto numbers(auto& in, auto& clip, auto& epsilon) {
    return std::tie(in.learning_rate, in.beta2_decay, epsilon, in.smallest_scale, clip,
                    in.weight_decay, in.groups);
  }
  static auto numbers(auto& keys) { return numbers(keys, keys.update_clip, keys.factored_epsilon); }
  static auto numbers(Adafactor& in) { return numbers(in, in.clip, in.epsilon); }
  static auto numbers(const Adafactor& in) { return numbers(in, in.clip, in.epsilon); }
  std::vector<std::string> state() const;  // of vectors only
  using Rules = kernel::RuleList<kernel::FactoredDirection, kernel::AverageSquares>;
};

/// The sign of an interpolated momentum (Chen et al. 2023, arXiv:2302.06675, algorithm 2).
struct Lion {
  double learning_rate = 1e-4;
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  std::vector<ParameterGroup> groups = {};

  static constexpr std::string_view kName = "lion";
  static auto numbers(auto& in) {
    return std::tie(in.learning_rate, in.beta1, in.beta2, in.weight_decay, in.groups);
  }
  std::vector<std::string> state() const;
  using Rules = kernel::RuleList<kernel::LionRule>;
  kernel::LionRule rule(const kernel::StepNumbers& step) const;
};

/// A rate for each element that falls with the squares of its gradients (Duchi et al. 2011, JMLR
/// 12), as torch.optim.Adagrad.
struct Adagrad {
  double learning_rate = 1e-2;
  double epsilon = 1e-10, weight_decay = 0;
  std::vector<ParameterGroup> groups = {};

  static constexpr std::string_view kName = "adagrad";
  static auto numbers(auto& in) {
    return std::tie(in.learning_rate, in.epsilon, in.weight_decay, in.groups);
  }
  std::vector<std::string> state() const;
  using Rules = kernel::RuleList<kernel::AdagradRule>;
  kernel::AdagradRule rule(const kernel::StepNumbers& step) const;
};

/// Follow the regularized leader (McMahan et al. 2013, KDD, algorithm 1), as TensorFlow's Ftrl:
/// `l1` makes weights exactly 0, and `weight_decay` is twice its l2 strength.
struct Ftrl {
  double learning_rate = 1e-2;
  double l1 = 0, weight_decay = 0;
  std::vector<ParameterGroup> groups = {};
  double initial_accumulator = 0.1;

  static constexpr std::string_view kName = "ftrl";
  static auto numbers(auto& in) {
    return std::tie(in.learning_rate, in.l1, in.weight_decay, in.groups, in.initial_accumulator);
  }
  std::vector<std::string> state() const;
  using Rules = kernel::RuleList<kernel::FtrlRule>;
  kernel::FtrlRule rule(const kernel::StepNumbers& step) const;
};

using OptimizerOptions = std::variant<AdamW, Sgd, Lamb, Adafactor, Lion, Adagrad, Ftrl>;

}  // namespace trireme::inline v0
