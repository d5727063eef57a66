#include "trireme/ps/rows/row_rule.h"

#include <array>

#include "trireme/base/check.h"
#include "trireme/kernel/optimizers/apply.h"
#include "trireme/optim/optimizer.h"
#include "trireme/ps/worker/optimizer_text.h"

namespace trireme::inline v0::ps {
namespace {

// Rows that are updated together have few different counts, mostly small or near one another. So
// the numbers of 256 counts are kept, at the places that the counts' last 8 bits give.
template <class Options>
class RowRuleOf final : public RowRule {
  using Rule = decltype(std::declval<const Options&>().rule(kernel::StepNumbers{}));

 public:
  RowRuleOf(const Options& options, const std::string& name, std::size_t width)
      : options_(options),
        state_(options.state()),
        width_(width),
        step_{.weight_decay = options.weight_decay} {
    for (const ParameterGroup& group : options.groups) {
      if (!optim::matches(group.match, name + ".rows")) continue;
      step_.weight_decay = group.weight_decay.value_or(step_.weight_decay);
      rate_factor_ = group.rate_factor;
      break;
    }
  }

  const std::vector<std::string>& state() const noexcept override { return state_; }

  void begin(double rate, double scale) override {
    step_.rate = rate * rate_factor_;
    step_.scale = scale;
    kept_.fill({});
  }

  void update(float* row, const float* gradient, std::uint32_t count) override {
    Kept& kept = kept_[count % kept_.size()];
    if (kept.count != count) {
      kernel::StepNumbers step = step_;
      step.count = count;
      kept = {count, options_.rule(step)};
    }
    std::array<float*, Rule::kShape.both> out{};
    out[0] = row;
    for (std::size_t k = 0; k < state_.size(); ++k) out[k + 1] = row + (k + 1) * width_;
    kernel::apply(kept.rule, &gradient, out.data(), nullptr, width_);
  }

 private:
  struct Kept {
    std::uint32_t count = 0;  // 0: none
    Rule rule = {};
  };
  const Options options_;
  const std::vector<std::string> state_;
  const std::size_t width_;
  kernel::StepNumbers step_;
  double rate_factor_ = 1;
  std::array<Kept, 256> kept_;
};

}  // namespace

std::unique_ptr<RowRule> make_row_rule(const OptimizerOptions& options, const std::string& name,
                                       std::size_t width) {
  require_elementwise(optim::name_of(options));
  return std::visit(
      [&]<class Options>(const Options& own) -> std::unique_ptr<RowRule> {
        if constexpr (requires { own.rule(kernel::StepNumbers{}); })
          return std::make_unique<RowRuleOf<Options>>(own, name, width);
        TRIREME_CHECK(false);
        return nullptr;
      },
      options);
}

}  // namespace trireme::inline v0::ps
