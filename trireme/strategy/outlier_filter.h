// OutlierFilter: decides whether to skip a step whose loss or gradient norm lies far above those of
// the steps before it (a spike). PaLM (Chowdhery et al. 2022, arXiv:2204.02311, section 5.1)
// skipped such batches by hand; OLMo's step skipping by standard deviations is this rule.
//
// Both figures have the same bits on every rank and layout, so all ranks decide alike without
// communication. Not thread safe.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

namespace trireme::inline v0 {

struct OutlierOptions {
  /// A step is skipped if its loss or gradient norm is more than `limit` standard deviations above
  /// the mean of the window; 0: no step is skipped.
  double limit = 0;
  /// The number of previous steps in the window. No step is skipped until the window is half full.
  /// Skipped steps enter it too, so that the filter adapts to a lasting change.
  int window = 128;
};

namespace parallel {

class OutlierFilter {
 public:
  /// ConfigError if `limit` is negative or `window` is below 4.
  explicit OutlierFilter(const OutlierOptions& options);
  /// Returns why to skip the step; empty: do not skip. Adds its figures to the window.
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
}  // namespace trireme::inline v0
