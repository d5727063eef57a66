#include "trireme/strategy/loss_scale.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "trireme/base/parse_number.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"

namespace trireme::inline v0::parallel {
namespace {

constexpr double kLeast = 1, kMost = 0x1p32;

bool is_scale(double value) {
  int exponent = 0;
  return value >= kLeast && value <= kMost && std::frexp(value, &exponent) == 0.5;
}

[[noreturn]] void refuse_scale(const std::string& key, std::string_view value) {
  refuse(
      "config",
      key + " = " + std::string(value) +
          " is not a power of two from 1 to 4294967296. Dividing gradients by it would round them",
      "Use 65536, or another power of two.");
}

}  // namespace

LossScale::LossScale(const LossScaleOptions& options) : options_(options) {
  if (!is_scale(options.initial)) refuse_scale("the loss scale", number_text(options.initial));
  if (options.window < 1)
    refuse("config", "train.loss_scale_window = " + std::to_string(options.window) + " is below 1",
           "Use 1 step or more; 2000 is usual.");
  state.scale = options.initial;
}

double LossScale::loss_gradient(std::int64_t count) const noexcept {
  const auto items = static_cast<std::uint64_t>(std::max<std::int64_t>(count, 1));
  return state.scale / static_cast<double>(std::bit_ceil(items));
}

void LossScale::overflowed() noexcept {
  state.scale /= 2;
  state.passed = 0;
  ++state.overflows;
}

void LossScale::passed() noexcept {
  if (!options_.dynamic || ++state.passed < options_.window) return;
  state.scale = std::min(2 * state.scale, kMost);
  state.passed = 0;
}

void LossScale::restore(const State& saved) noexcept {
  if (options_.dynamic && is_scale(saved.scale)) state = saved;
}

LossScaleOptions parse_loss_scale(std::string_view text, double initial, std::int64_t window) {
  if (text == "dynamic") {
    if (!is_scale(initial)) refuse_scale("train.initial_loss_scale", number_text(initial));
    return {.initial = initial, .window = window};
  }
  const auto scale = parse_number<double>(text);
  if (!scale)
    refuse("config", "train.loss_scale is '" + std::string(text) + "'",
           "Use dynamic, or a power of two such as 1024.");
  if (!is_scale(*scale)) refuse_scale("train.loss_scale", text);
  return {.dynamic = false, .initial = *scale, .window = window};
}

}  // namespace trireme::inline v0::parallel
