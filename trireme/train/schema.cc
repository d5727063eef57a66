#include "trireme/train/schema.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/parallel/data/compression/compressor.h"
#include "trireme/parallel/sync_plan.h"
#include "trireme/plan/link.h"
#include "trireme/train/job_keys.h"
#include "trireme/train/model_size.h"
#include "trireme/train/parameter_groups.h"

namespace trireme {
inline namespace v0 {
namespace train {
namespace {

void add_model_keys(config::Schema& schema, const ModelRegistry& models, const ModelKind& kind) {
  schema.add({"model.name", config::Value(kind.name), "Which model.", 0, 0, models.names(), true});
  for (const config::Key& key : kind.keys) schema.add(key);
}

OptimizerOptions optimizer_of(const config::Config& config, double rate) {
  const auto number = [&](const char* key) { return config.number(key); };
  const std::string& name = config.text("optimizer.name");
  const double beta1 = number("train.beta1"), beta2 = number("train.beta2");
  const double epsilon = number("train.epsilon"), decay = number("train.weight_decay");
  std::vector<ParameterGroup> groups = parse_groups(config.text("optimizer.groups"));
  if (name == "sgd") {
    if (config.boolean("optimizer.nesterov") &&
        (number("optimizer.dampening") != 0 || number("optimizer.momentum") == 0)) {
      throw ConfigError("optimizer.nesterov needs a momentum and no dampening",
                        {.operation = "config", .advice = "Change one of the three."});
    }
    return Sgd{.learning_rate = rate,
               .momentum = number("optimizer.momentum"),
               .weight_decay = decay,
               .nesterov = config.boolean("optimizer.nesterov"),
               .dampening = number("optimizer.dampening"),
               .groups = std::move(groups)};
  }
  if (name == "lamb") return Lamb{rate, beta1, beta2, epsilon, decay, std::move(groups)};
  if (name == "lion") return Lion{rate, beta1, beta2, decay, std::move(groups)};
  if (name == "adafactor") {
    return Adafactor{.learning_rate = rate,
                     .beta2_decay = number("optimizer.beta2_decay"),
                     .smallest_scale = number("optimizer.smallest_scale"),
                     .clip = number("optimizer.update_clip"),
                     .weight_decay = decay,
                     .groups = std::move(groups)};
  }
  return AdamW{rate, beta1, beta2, epsilon, decay, std::move(groups)};
}

optim::Schedule schedule_of(const config::Config& config) {
  const auto rate = [&](const char* key) {
    return optim::scaled_rate(config.number(key), config.integer("batch.global"),
                              config.integer("train.base_batch"));
  };
  const std::int64_t steps = config.integer("train.steps");
  const std::int64_t decay_steps = config.integer("train.decay_steps");
  const optim::Schedule schedule{.peak = rate("train.learning_rate"),
                                 .final_rate = rate("train.final_learning_rate"),
                                 .warmup = config.integer("train.warmup"),
                                 .steps = steps,
                                 .decay = optim::decay_of(config.text("train.schedule")),
                                 .decay_steps = decay_steps > 0 ? decay_steps : steps / 5,
                                 .power = config.number("train.power"),
                                 .start_divisor = config.number("train.start_divisor"),
                                 .rise = config.number("train.rise"),
                                 .every = config.integer("train.step_every"),
                                 .factor = config.number("train.step_factor")};
  optim::check(schedule);
  return schedule;
}

// What decides the bits only where ranks train copies of their own.
std::string local_identity(const config::Config& config) {
  const std::string& sync = config.text("parallel.sync");
  if (!parallel::is_local(sync)) return {};
  std::vector<const char*> keys = {"parallel.sync", "parallel.local_steps",
                                   "parallel.post_local_after"};
  if (sync == "diloco") keys.insert(keys.end(), {"parallel.outer_rate", "parallel.outer_momentum"});
  if (sync == "easgd") keys.push_back("parallel.elastic");
  if (sync == "gossip") keys.push_back("parallel.graph");
  std::string identity;
  for (const char* key : keys)
    identity += std::string(key) + " = " + config::to_toml(config.value(key)) + "\n";
  return identity;
}

Duration seconds(double value) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

// The named model with the values of this configuration.
Model model_of(const config::Config& config, const ModelRegistry& models) {
  const ModelKind* kind = models.find(config.text("model.name"));
  TRIREME_CHECK((kind == nullptr) == false);
  const ModelValues values(kind->name, kind->keys, config);
  Model model{.block = values.block(), .blocks = kind->make(values)};
  model.description =
      kind->name + ", " + (kind->describe ? kind->describe(values) : values.summary());
  if (kind->size) {
    model.size = [size = kind->size, values](std::int64_t sequences) {
      return size(values, sequences);
    };
  } else {
    model.size = [blocks = model.blocks, block = model.block](std::int64_t sequences) {
      return measure_size(blocks, sequences, block);
    };
  }
  return model;
}

}  // namespace

const ModelKind& chosen_model(const std::string& path, const config::Environment& environment,
                              const std::vector<std::string>& assignments,
                              const ModelRegistry& models) {
  std::optional<std::string> name;
  if (!path.empty()) name = config::text_in_file(path, "model.name");
  if (const char* text = environment("TRIREME_MODEL_NAME")) name = text;
  for (const std::string& assignment : assignments)
    if (assignment.starts_with("model.name=")) name = assignment.substr(11);
  if (name && name->size() >= 2 && name->front() == '"' && name->back() == '"')
    name = name->substr(1, name->size() - 2);
  const ModelKind* kind = name ? models.find(*name) : nullptr;
  return kind != nullptr ? *kind : models.standard();
}

config::Schema training_schema(const ModelRegistry& models, const ModelKind& kind) {
  config::Schema schema;
  schema.program(models.program());
  add_model_keys(schema, models, kind);
  add_job_keys(schema);
  return schema;
}

config::Config read_config(const std::string& path, const config::Environment& environment,
                           const std::vector<std::string>& assignments,
                           const ModelRegistry& models) {
  const ModelKind& kind = chosen_model(path, environment, assignments, models);
  config::Config config(training_schema(models, kind));
  if (!path.empty()) config.read_file(path);
  config.read_environment(environment);
  for (const std::string& assignment : assignments) config.set(assignment);
  return config;
}

Settings::Settings(const config::Config& config, const ModelRegistry& models)
    : model(model_of(config, models)) {
  const auto integer = [&](const char* key) { return config.integer(key); };
  const auto number = [&](const char* key) { return config.number(key); };
  const std::string& precision = config.text("train.precision");
  const auto seed = static_cast<std::uint64_t>(integer("train.seed"));
  parallel::check_compression(config.text("comm.compression"));
  if (precision == "fp64" && config.text("comm.compression") != "none") {
    throw ConfigError("comm.compression = \"" + config.text("comm.compression") +
                          "\" with train.precision = \"fp64\": fp64 is for checking",
                      {.operation = "config", .advice = "Use fp32 or bf16, or no compression."});
  }
  strategy = {.sync = config.text("parallel.sync"),
              .data = static_cast<int>(integer("parallel.data")),
              .shard = static_cast<int>(integer("parallel.shard")),
              .precision = precision,
              .clip = number("train.clip"),
              .seed = seed,
              .bucket_bytes = integer("comm.bucket_bytes"),
              .compression = config.text("comm.compression"),
              .offload = config.text("memory.offload"),
              .lanes = static_cast<int>(integer("train.lanes")),
              .local = {.steps = static_cast<int>(integer("parallel.local_steps")),
                        .post_local_after = integer("parallel.post_local_after"),
                        .outer_rate = number("parallel.outer_rate"),
                        .outer_momentum = number("parallel.outer_momentum"),
                        .elastic = number("parallel.elastic"),
                        .graph = config.text("parallel.graph"),
                        .graph_seed = seed},
              .ema = number("train.ema"),
              .outliers = {.limit = number("train.skip_outliers"),
                           .window = static_cast<int>(integer("train.outlier_window"))},
              .noise_scale = config.boolean("train.noise_scale")};
  if (strategy.noise_scale && integer("batch.global") <= integer("batch.micro")) {
    throw ConfigError("train.noise_scale compares micro-batches, and batch.global " +
                          std::to_string(integer("batch.global")) + " is one of " +
                          std::to_string(integer("batch.micro")),
                      {.operation = "config", .advice = "Lower batch.micro."});
  }
  patience = integer("train.patience");
  min_improvement = number("train.min_improvement");
  if (patience > 0 && integer("train.validate_every") == 0) {
    throw ConfigError("train.patience counts validations, and train.validate_every is 0",
                      {.operation = "config", .advice = "Set train.validate_every, in steps."});
  }
  const std::string identity = config.identity() + local_identity(config);
  steps = integer("train.steps");
  schedule = schedule_of(config);
  optimizer = optimizer_of(config, schedule.peak);
  batches = {.batch = integer("batch.global"),
             .micro = integer("batch.micro"),
             .steps = steps,
             .seed = seed};
  checkpoints = {.every = static_cast<long>(integer("checkpoint.every")),
                 .keep = static_cast<int>(integer("checkpoint.keep")),
                 .identity = identity};
  job = {.transport = config.text("comm.transport"),
         .algorithm = config.text("comm.algorithm"),
         .timeout = seconds(number("timeout")),
         .timeout_user_code = seconds(number("timeout.user_code")),
         .reproducible = config.boolean("train.reproducible"),
         .identity = identity,
         .sockets = static_cast<int>(integer("comm.sockets")),
         .interface = config.text("comm.interface")};
  link = plan::link_of(config.text("comm.link"));
  data_path = config.text("data.path");
  validate_every = integer("train.validate_every");
  validate_sequences = integer("train.validate_sequences");
  kernel_threads = static_cast<int>(integer("train.kernel_threads"));
  kernel_table = config.text("train.kernel_table");
  sample_bytes = integer("train.sample_bytes");
}

}  // namespace train
}  // namespace v0
}  // namespace trireme
