#include "trireme/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme {
inline namespace v0 {
namespace optim {

double learning_rate(const Schedule& schedule, std::int64_t step) {
  if (step < schedule.warmup) {
    return schedule.peak * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup + 1);
  }
  if (schedule.steps == 0) return schedule.peak;
  if (step >= schedule.steps) return schedule.final_rate;
  const double done = static_cast<double>(step - schedule.warmup) /
                      static_cast<double>(schedule.steps - schedule.warmup);
  const double share = 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return schedule.final_rate + share * (schedule.peak - schedule.final_rate);
}

double clipping_factor(double norm, double limit) {
  if (limit <= 0) return 1.0;
  return std::min(1.0, limit / (norm + 1e-6));
}

}  // namespace optim
}  // namespace v0
}  // namespace trireme
