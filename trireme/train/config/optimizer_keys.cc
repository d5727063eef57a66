#include "trireme/train/config/optimizer_keys.h"

#include <cstdint>
#include <string>

#include "trireme/optim/optimizer.h"
#include "trireme/optim/schedule.h"

namespace trireme::inline v0::train {

constexpr double kMostSteps = 1e15;

void add_optimizer_keys(config::Schema& schema) {
  schema.add(identity_key(
      {"optimizer.name", std::string("adamw"),
       "Which optimizer; train.learning_rate, weight_decay, beta1, beta2 and epsilon are its "
       "numbers where it has them.",
       0, 0, optim::optimizer_names()}));
  schema.add(identity_key({"optimizer.momentum", 0.9, "Momentum of sgd.", 0, 1}));
  schema.add(identity_key({"optimizer.dampening", 0.0, "Dampening of sgd's momentum.", 0, 1}));
  schema.add(identity_key({"optimizer.nesterov", false, "Nesterov's form of sgd's momentum."}));
  schema.add(identity_key({"optimizer.beta2_decay", -0.8,
                           "Step t's squares weigh t to this power (adafactor).", -1e3, 0}));
  schema.add(identity_key(
      {"optimizer.update_clip", 1.0,
       "Largest root mean square of an update, before the learning rate (adafactor).", 1e-9, 1e9}));
  schema.add(identity_key(
      {"optimizer.smallest_scale", 1e-3,
       "Steps are relative to a parameter's root mean square, or to this if it is larger "
       "(adafactor).",
       0, 1e9}));
  schema.add(
      identity_key({"optimizer.l1", 0.0,
                    "Strength of L1, which makes weights exactly 0 (ftrl). Its l2 is half of "
                    "train.weight_decay.",
                    0, 1e9}));
  schema.add({.name = "optimizer.groups",
              .fallback = std::string(),
              .meaning =
                  "Settings of parameters by name; the first match counts: [[optimizer.groups]] "
                  "match = \"*.bias\", weight_decay = 0, learning_rate = 0.5 (a factor); or "
                  "in one line \"match=*.bias weight_decay=0; match=...\".",
              .identity = true,
              .tables = true});
}

void add_schedule_keys(config::Schema& schema) {
  schema.add(identity_key({"train.schedule", std::string("cosine"),
                           "The learning rate after the warm-up.", 0, 0, optim::decay_names()}));
  schema.add(identity_key({"train.final_learning_rate", 1e-4,
                           "Learning rate at the end (linear, cosine, wsd, polynomial, one_cycle).",
                           0, 1e3}));
  schema.add(
      identity_key({"train.warmup", std::int64_t(100), "Steps of linear warm-up.", 0, kMostSteps}));
  schema.add(identity_key({"train.decay_steps", std::int64_t(0),
                           "Last steps, in which the rate falls; 0 = a fifth of train.steps (wsd).",
                           0, kMostSteps}));
  schema.add(identity_key({"train.power", 1.0, "Power of the polynomial.", 0, 1e3}));
  schema.add(identity_key(
      {"train.rise", 0.3, "Share of the steps in which the rate rises (one_cycle).", 0, 1}));
  schema.add(identity_key({"train.start_divisor", 25.0,
                           "The rate starts at its peak divided by this (one_cycle).", 1, 1e9}));
  schema.add(identity_key({"train.step_every", std::int64_t(0),
                           "Steps between two falls of the rate (step).", 0, kMostSteps}));
  schema.add(identity_key({"train.step_factor", 0.1, "Factor of each fall (step).", 0, 1}));
  schema.add(
      identity_key({"train.base_batch", std::int64_t(0),
                    "Linear-scaling rule: the learning rates are for this batch and grow with "
                    "batch.global; 0 = as they are.",
                    0, 1e9}));
}

}  // namespace trireme::inline v0::train
