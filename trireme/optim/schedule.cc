#include "trireme/optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "trireme/base/refuse.h"

namespace trireme::inline v0::optim {
namespace {

constexpr std::array<std::string_view, 7> kNames = {"constant",   "linear",    "cosine", "wsd",
                                                    "polynomial", "one_cycle", "step"};

// From `from` to `to` along half a cosine.
double along_cosine(double from, double to, double done) {
  return to + 0.5 * (1.0 + std::cos(std::numbers::pi * done)) * (from - to);
}

// As torch.optim.lr_scheduler.OneCycleLR: the peak is at step rise * steps - 1, the end at steps -
// 1.
double one_cycle(const Schedule& schedule, std::int64_t step) {
  const double top = schedule.rise * static_cast<double>(schedule.steps) - 1;
  const double last = static_cast<double>(schedule.steps) - 1;
  const double at = std::min(static_cast<double>(step), last);
  if (at <= top)
    return along_cosine(schedule.peak / schedule.start_divisor, schedule.peak, at / top);
  return along_cosine(schedule.peak, schedule.final_rate, (at - top) / (last - top));
}

double stable(const Schedule& schedule, std::int64_t step) {
  const std::int64_t left = schedule.steps - step;
  if (left >= schedule.decay_steps) return schedule.peak;
  const double share = static_cast<double>(left) / static_cast<double>(schedule.decay_steps);
  return schedule.final_rate + share * (schedule.peak - schedule.final_rate);
}

}  // namespace

std::string_view name_of(Decay decay) noexcept { return kNames[static_cast<std::size_t>(decay)]; }

std::vector<std::string> decay_names() { return {kNames.begin(), kNames.end()}; }

Decay decay_of(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    std::string all;
    for (const std::string_view one : kNames) all += (all.empty() ? "" : ", ") + std::string(one);
    refuse("config", "there is no learning-rate schedule \"" + std::string(name) + "\"",
           "There are " + all + ".");
  }
  return static_cast<Decay>(found - kNames.begin());
}

void check(const Schedule& schedule) {
  for (const double number : {schedule.peak, schedule.final_rate, schedule.power, schedule.rise,
                              schedule.factor, schedule.start_divisor})
    if (!std::isfinite(number) || number < 0)
      refuse("config", "a number of the learning-rate schedule is negative or not finite",
             "Give rates, power, rise, factor and start_divisor finite numbers from 0 on.");
  for (const std::int64_t steps :
       {schedule.warmup, schedule.steps, schedule.decay_steps, schedule.every})
    if (steps < 0)
      refuse("config",
             "the learning-rate schedule has a number of steps of " + std::to_string(steps),
             "Give warmup, steps, decay_steps and every numbers from 0 on.");
  if (schedule.rise > 1)
    refuse("config", "the learning rate is to rise for more than all of the steps (train.rise)",
           "Give it a share of the steps, such as 0.3.");
  const std::string warmup = std::to_string(schedule.warmup);
  const std::string steps = std::to_string(schedule.steps);
  if (schedule.decay == Decay::OneCycle) {
    if (schedule.warmup != 0)
      refuse("config", "the schedule one_cycle has its own warm-up, and train.warmup = " + warmup,
             "Set train.warmup = 0; train.rise says how long the rate rises.");
    if (schedule.start_divisor == 0)
      refuse("config",
             "the schedule one_cycle starts at the peak divided by start_divisor, which is 0",
             "Set it to 25, as torch's OneCycleLR.");
    if (schedule.steps < 2 || schedule.rise * static_cast<double>(schedule.steps) <= 1)
      refuse("config",
             "the schedule one_cycle has no step to rise in: train.rise x train.steps is at most 1",
             "Train for more steps, or raise train.rise.");
  }
  if (schedule.decay == Decay::Step && schedule.every < 1)
    refuse("config", "the schedule step needs to know how often it steps: train.step_every is 0",
           "Set train.step_every, in steps.");
  if (schedule.decay == Decay::Stable && schedule.decay_steps > schedule.steps - schedule.warmup)
    refuse("config",
           "train.warmup = " + warmup + " and train.decay_steps = " +
               std::to_string(schedule.decay_steps) + " are more than train.steps = " + steps,
           "Lower one of them.");
}

double learning_rate(const Schedule& schedule, std::int64_t step) {
  if (step < schedule.warmup)
    return schedule.peak * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup + 1);
  if (schedule.decay == Decay::Constant) return schedule.peak;
  if (schedule.decay == Decay::Step) {
    const std::int64_t times = schedule.every > 0 ? (step - schedule.warmup) / schedule.every : 0;
    return schedule.peak * std::pow(schedule.factor, static_cast<double>(times));
  }
  if (schedule.steps == 0) return schedule.peak;
  if (schedule.decay == Decay::OneCycle) return one_cycle(schedule, step);
  if (step >= schedule.steps) return schedule.final_rate;
  if (schedule.decay == Decay::Stable) return stable(schedule, step);
  const double done = static_cast<double>(step - schedule.warmup) /
                      static_cast<double>(schedule.steps - schedule.warmup);
  if (schedule.decay == Decay::Cosine)
    return along_cosine(schedule.peak, schedule.final_rate, done);
  const double power = schedule.decay == Decay::Polynomial ? schedule.power : 1.0;
  return schedule.final_rate + std::pow(1.0 - done, power) * (schedule.peak - schedule.final_rate);
}

double scaled_rate(double rate, std::int64_t batch, std::int64_t base_batch) {
  if (base_batch == 0) return rate;
  return rate * static_cast<double>(batch) / static_cast<double>(base_batch);
}

double clipping_factor(double norm, double limit) {
  if (limit <= 0) return 1.0;
  return std::min(1.0, limit / (norm + 1e-6));
}

}  // namespace trireme::inline v0::optim
