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

#include "trireme/sync/options.h"

namespace trireme::inline v0::parallel {

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
  void keep(std::size_t steps);

  OutlierOptions options_;
};

}  // namespace trireme::inline v0::parallel
