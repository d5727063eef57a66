#include <nlohmann/json.hpp>

#include "trireme/strategy/strategy_impl.h"

namespace trireme::inline v0 {

void Strategy::Impl::make_helpers() {
  if (options.outliers.limit != 0) outliers.emplace(options.outliers);
  if (options.noise_scale) {
    std::vector<std::uint32_t> parameters;
    for (const parallel::ParameterUse& use : store().use_of_leaf())
      parameters.push_back(store().parameter_of()[use.block][use.parameter]);
    noise.emplace(std::move(parameters));
  }
  if (options.ema == 0) return;
  average.emplace(options.ema, sync->owned());
  if (mapped)
    for (const at::Tensor& memory : average->memory()) mapped->take(memory);
}

void Strategy::Impl::take(std::size_t leaf, at::Tensor gradient) {
  if (noise) noise->gradient(leaf, gradient);
  gradients->gradient(store().use_of_leaf()[leaf], microbatch, std::move(gradient));
}

// The loss gradient is a power of two, so dividing by it is exact.
void Strategy::Impl::begin_micro(std::uint32_t index, std::int64_t count) {
  microbatch = index;
  const double unscale = 1 / loss_gradient(count);
  gradients->begin_micro(index, unscale);
  if (noise) noise->begin_micro(unscale);
}

void Strategy::Impl::end_micro(std::int64_t count) {
  gradients->end_micro();
  if (noise) noise->end_micro(count);
}

bool Strategy::Impl::judge(StepResult& result) {
  if (!outliers || result.count == 0) return true;
  result.skipped = outliers->judge(result.loss, *result.gradient_norm);
  return result.skipped.empty();
}

void Strategy::Impl::use_average(bool on) {
  if (!average || on == averaged) return;
  average->swap(sync->owned());
  averaged = on;
  parts.refresh();
  sync->publish().wait();
}

void Strategy::Impl::save_helpers(nlohmann::json& into) const {
  if (not_finite.left_out() > 0) into["not_finite"] = not_finite.left_out();
  if (loss_scale)
    into["loss_scale"] = {{"scale", loss_scale->state.scale},
                          {"passed", loss_scale->state.passed},
                          {"overflows", loss_scale->state.overflows}};
  if (outliers)
    into["outliers"] = {{"losses", outliers->state.losses},
                        {"norms", outliers->state.norms},
                        {"skipped", outliers->state.skipped}};
  if (noise)
    into["noise"] = {{"steps", noise->state.steps},
                     {"signal", noise->state.signal},
                     {"noise", noise->state.noise}};
}

void Strategy::Impl::restore_helpers(const nlohmann::json& saved) {
  try {
    not_finite.restore(saved.value("not_finite", std::int64_t{0}));
    if (loss_scale && saved.contains("loss_scale")) {
      const nlohmann::json& from = saved["loss_scale"];
      loss_scale->restore({.scale = from.at("scale").get<double>(),
                           .passed = from.at("passed").get<std::int64_t>(),
                           .overflows = from.at("overflows").get<std::int64_t>()});
    }
    if (outliers && saved.contains("outliers")) {
      const nlohmann::json& from = saved["outliers"];
      outliers->state = {.losses = from.at("losses").get<std::deque<double>>(),
                         .norms = from.at("norms").get<std::deque<double>>(),
                         .skipped = from.at("skipped").get<std::int64_t>()};
    }
    if (noise && saved.contains("noise")) {
      const nlohmann::json& from = saved["noise"];
      noise->state = {.steps = from.at("steps").get<std::int64_t>(),
                      .signal = from.at("signal").get<double>(),
                      .noise = from.at("noise").get<double>()};
    }
  } catch (const nlohmann::json::exception&) {
    refuse_metadata();
  }
}

}  // namespace trireme::inline v0
