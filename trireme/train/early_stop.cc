#include "trireme/train/early_stop.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/tensor/saved_count.h"

namespace trireme::inline v0::train {
namespace {

constexpr std::int64_t kNotSaid = std::numeric_limits<std::int64_t>::max();

}  // namespace

void EarlyStop::judge(std::int64_t steps, double loss) {
  if (steps <= last_step_ && last_step_ != kNotSaid) return;
  last_step_ = steps;
  // NaN and infinity are not improvements and never become the best loss.
  if (std::isfinite(loss) && (!judged_ || loss < best_loss_ - min_improvement_)) {
    judged_ = true;
    best_loss_ = loss;
    best_step_ = steps;
    waited_ = 0;
  } else {
    ++waited_;
  }
}

std::string EarlyStop::metadata() const {
  return nlohmann::json{{"judged", judged_},
                        {"best_loss", best_loss_},
                        {"best_step", best_step_},
                        {"waited", waited_},
                        {"last_step", last_step_}}
      .dump();
}

void EarlyStop::restored(const std::string& metadata) {
  try {
    const auto saved = nlohmann::json::parse(metadata);
    judged_ = saved.at("judged").get<bool>();
    best_loss_ = saved.at("best_loss").get<double>();
    best_step_ = saved_count(saved, "best_step");
    waited_ = saved_count(saved, "waited");
    // Older checkpoints do not say it; nearly all of them were saved after the validation.
    last_step_ = saved.value("last_step", kNotSaid);
  } catch (const nlohmann::json::exception&) {
    throw CheckpointError(
        "the checkpoint's record of validation losses cannot be read",
        {.operation = "resume", .advice = "Use a checkpoint of the same program."});
  }
}

}  // namespace trireme::inline v0::train
