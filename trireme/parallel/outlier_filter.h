// OutlierFilter: whether a step's loss or gradient norm lies so far above those of the steps before
// it that it is better left out (a spike: PaLM, Chowdhery et al. 2022, arXiv:2204.02311, section
// 5.1, skipped such batches by hand; OLMo's step skipping by standard deviations is this rule).
//
// Both figures have the same bits on every rank and layout, so all ranks decide alike without
// asking. Plain arithmetic; not thread safe.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

namespace trireme {
inline namespace v0 {

struct OutlierOptions {
  /// A step is left out whose loss or gradient norm is more than so many standard deviations above
  /// the mean of the window; 0 = none is.
  double limit = 0;
  /// Steps before it that count; none is left out until half as many have been taken. Those that
  /// were left out count, too, so that a change that lasts is soon the rule.
  int window = 128;
};

namespace parallel {

class OutlierFilter {
 public:
  /// ConfigError where limit is negative or the window below 4.
  explicit OutlierFilter(const OutlierOptions& options);
  /// Why the step is to be left out; empty: it is not. Its figures join the window.
  std::string judge(double loss, double gradient_norm);

  struct State {
    std::deque<double> losses, norms;  // oldest first
    std::int64_t skipped = 0;
  };
  State state;

 private:
  OutlierOptions options_;
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
