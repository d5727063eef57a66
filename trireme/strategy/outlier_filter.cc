#include "trireme/strategy/outlier_filter.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::inline v0::parallel {
namespace {

// How many standard deviations `value` lies above the mean of `before`. The deviation is at least a
// millionth of the mean, so that nearly equal values do not turn noise into outliers.
double deviations(const std::deque<double>& before, double value) {
  const double count = static_cast<double>(before.size());
  double mean = 0, squares = 0;
  for (const double one : before) mean += one;
  mean /= count;
  for (const double one : before) squares += (one - mean) * (one - mean);
  const double deviation = std::max(std::sqrt(squares / (count - 1)), 1e-6 * std::abs(mean));
  return deviation > 0 ? (value - mean) / deviation : 0;
}

std::string reason(const char* what, double value, double above, std::size_t steps) {
  char text[160];
  std::snprintf(text, sizeof text,
                "its %s of %.4g is %.1f standard deviations above the mean of the %zu steps before",
                what, value, above, steps);
  return text;
}

}  // namespace

OutlierFilter::OutlierFilter(const OutlierOptions& options) : options_(options) {
  if (options.limit >= 0 && options.window >= 4) return;
  throw ConfigError("train.skip_outliers = " + number_text(options.limit) +
                        " over train.outlier_window = " + std::to_string(options.window) +
                        " steps: the limit must be at least 0 and the window at least 4",
                    {.operation = "strategy", .advice = "Use 6 over 128, or 0 for never."});
}

void OutlierFilter::keep(std::size_t steps) {
  while (state.losses.size() > steps) {
    state.losses.pop_front();
    state.norms.pop_front();
  }
}

std::string OutlierFilter::judge(double loss, double gradient_norm) {
  std::string why;
  keep(static_cast<std::size_t>(options_.window));  // a resumed run may have another window
  const std::size_t seen = state.losses.size();
  if (options_.limit > 0 && 2 * seen >= static_cast<std::size_t>(options_.window)) {
    const double by_loss = deviations(state.losses, loss);
    const double by_norm = deviations(state.norms, gradient_norm);
    if (by_loss > options_.limit) {
      why = reason("loss", loss, by_loss, seen);
    } else if (by_norm > options_.limit) {
      why = reason("gradient norm", gradient_norm, by_norm, seen);
    }
  }
  state.losses.push_back(loss);
  state.norms.push_back(gradient_norm);
  keep(static_cast<std::size_t>(options_.window));
  if (!why.empty()) ++state.skipped;
  return why;
}

}  // namespace trireme::inline v0::parallel
