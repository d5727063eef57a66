#include "trireme/train/config/optimizer_keys.h"

#include <cstdint>
#include <string>

#include "trireme/optim/optimizer.h"
#include "trireme/optim/schedule.h"

namespace trireme::inline v0::train {

constexpr double kMostSteps = 1e15;

void add_optimizer_keys(config::Schema& schema) {
  schema.add(
      {"optimizer.name", std::string("adamw"),
       "Which optimizer; train.learning_rate, weight_decay, beta1, beta2 and epsilon are its "
       "numbers where it has them.",
       0, 0, optim::optimizer_names(), true});
  schema.add({"optimizer.momentum", 0.9, "Of sgd.", 0, 1, {}, true});
  schema.add({"optimizer.dampening", 0.0, "Of sgd's momentum.", 0, 1, {}, true});
  schema.add({"optimizer.nesterov", false, "Of sgd's momentum.", 0, 1, {}, true});
  schema.add({"optimizer.beta2_decay",
              -0.8,
              "Of adafactor: step t's squares weigh t^this.",
              -1e3,
              0,
              {},
              true});
  schema.add({"optimizer.update_clip",
              1.0,
              "Of adafactor: largest root mean square of an update, before the rate.",
              1e-9,
              1e9,
              {},
              true});
  schema.add({"optimizer.smallest_scale",
              1e-3,
              "Of adafactor: steps are relative to a parameter's root mean square, or to this.",
              0,
              1e9,
              {},
              true});
  schema.add({"optimizer.l1",
              0.0,
              "Of ftrl: strength of L1, which makes weights exactly 0. Its l2 is half of "
              "train.weight_decay.",
              0,
              1e9,
              {},
              true});
  schema.add({.name = "optimizer.groups",
              .fallback = std::string(),
              .meaning =
                  "Numbers of parameters by name, the first match counts: [[optimizer.groups]] "
                  "match = \"*.bias\", weight_decay = 0, learning_rate = 0.5 (a factor); or "
                  "in one line \"match=*.bias weight_decay=0; match=...\".",
              .identity = true,
              .tables = true});
}

void add_schedule_keys(config::Schema& schema) {
  schema.add({"train.schedule", std::string("cosine"), "The learning rate after the warm-up.", 0, 0,
              optim::decay_names(), true});
  schema.add({"train.final_learning_rate",
              1e-4,
              "Learning rate at the end (linear, cosine, wsd, polynomial, one_cycle).",
              0,
              1e3,
              {},
              true});
  schema.add(
      {"train.warmup", std::int64_t(100), "Steps of linear warm-up.", 0, kMostSteps, {}, true});
  schema.add({"train.decay_steps",
              std::int64_t(0),
              "Of wsd: the last steps, in which the rate falls; 0 = a fifth of train.steps.",
              0,
              kMostSteps,
              {},
              true});
  schema.add({"train.power", 1.0, "Of polynomial.", 0, 1e3, {}, true});
  schema.add({"train.rise", 0.3, "Of one_cycle: share of the steps that rise.", 0, 1, {}, true});
  schema.add({"train.start_divisor",
              25.0,
              "Of one_cycle: it starts at the peak over this.",
              1,
              1e9,
              {},
              true});
  schema.add({"train.step_every",
              std::int64_t(0),
              "Of step: steps between two falls.",
              0,
              kMostSteps,
              {},
              true});
  schema.add(
      {"train.step_factor", 0.1, "Of step: what the rate is multiplied by.", 0, 1, {}, true});
  schema.add({"train.base_batch",
              std::int64_t(0),
              "Linear-scaling rule: the learning rates are for this batch and grow with "
              "batch.global; 0 = as they are.",
              0,
              1e9,
              {},
              true});
}

}  // namespace trireme::inline v0::train
