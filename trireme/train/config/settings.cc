#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/parse_number.h"
#include "trireme/base/refuse.h"
#include "trireme/base/shortened.h"
#include "trireme/memory/recompute.h"
#include "trireme/plan/link.h"
#include "trireme/plan/mixing.h"
#include "trireme/ps/settings.h"
#include "trireme/storage/storage.h"
#include "trireme/strategy/loss_scale.h"
#include "trireme/strategy/shares.h"
#include "trireme/sync/compression/compressor.h"
#include "trireme/sync/sync_plan.h"
#include "trireme/train/config/schema.h"
#include "trireme/train/plan/auto_recompute.h"
#include "trireme/train/time_limit.h"

namespace trireme::inline v0::train {
namespace {

constexpr std::array kLossScaleKeys = {"train.loss_scale", "train.initial_loss_scale",
                                       "train.loss_scale_window"};

bool is_default(const config::Config& config, const char* key) {
  return config.value(key) == config.schema().find(key)->fallback;
}

// Checks text values that have their own syntax.
void check_texts(const config::Config& config) {
  parallel::check_compression(config.text("comm.compression"));
  const std::string& recompute = config.text("memory.recompute");
  if (recompute != kAutoRecompute) memory::parse_recompute(recompute);  // throws for an unknown one
}

// Refuses server keys without servers: they would change nothing.
ServerOptions server_options_of(const config::Config& config) {
  const std::string& sync = config.text("parallel.sync");
  if (parallel::is_served(sync)) {
    if (config.text("comm.transport") == "sim")
      refuse("config",
             "parallel.sync = \"server\" cannot be combined with comm.transport = \"sim\"",
             "Servers are processes: use another transport.");
    ps::check_replicas(static_cast<int>(config.integer("server.replicas")),
                       static_cast<int>(config.integer("server.count")));
    return {.staleness = config.integer("server.staleness"),
            .backup = static_cast<int>(config.integer("server.backup")),
            .compensation = config.number("server.compensation"),
            .prediction = config.boolean("server.prediction"),
            .replicas = static_cast<int>(config.integer("server.replicas"))};
  }
  for (const char* key : {"server.count", "server.replicas", "server.staleness", "server.backup",
                          "server.compensation", "server.prediction"})
    if (!is_default(config, key))
      refuse("config",
             std::string(key) + " = " + config::to_toml(config.value(key)) +
                 " cannot be combined with parallel.sync = \"" + sync + "\"",
             "Leave it out, or use parallel.sync = \"server\".");
  return {};
}

LocalOptions local_options_of(const config::Config& config) {
  return {.steps = static_cast<int>(config.integer("parallel.local_steps")),
          .post_local_after = config.integer("parallel.post_local_after"),
          .outer_rate = config.number("parallel.outer_rate"),
          .outer_momentum = config.number("parallel.outer_momentum"),
          .elastic = config.number("parallel.elastic"),
          .graph = config.text("parallel.graph"),
          .graph_seed = static_cast<std::uint64_t>(config.integer("train.seed"))};
}

[[noreturn]] void refuse_entry(const std::string& entry, const std::string& why) {
  refuse("config", "optimizer.groups: \"" + entry + "\" " + why,
         "Write match=PATTERN, and weight_decay=NUMBER, learning_rate=FACTOR or both.");
}

double number_of(const std::string& entry, const std::string& text) {
  const auto value = parse_number<double>(text);
  if (!value || !std::isfinite(*value) || *value < 0)
    refuse_entry(entry, "has \"" + shortened(text) + "\" instead of a number of at least 0");
  return *value;
}

ParameterGroup group_of(const std::string& entry) {
  ParameterGroup group;
  std::istringstream words(entry);
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "match") {
      group.match = value;
    } else if (key == "weight_decay") {
      group.weight_decay = number_of(entry, value);
    } else if (key == "learning_rate") {
      group.rate_factor = number_of(entry, value);
    } else {
      refuse_entry(entry, "has \"" + word + "\"");
    }
  }
  if (group.match.empty()) refuse_entry(entry, "does not say which names it is for");
  return group;
}

// Parses "match=*.bias weight_decay=0; match=embed.* learning_rate=0.5", in which learning_rate is
// a factor. Throws ConfigError naming the wrong entry.
std::vector<ParameterGroup> parse_groups(const std::string& text) {
  std::vector<ParameterGroup> groups;
  std::istringstream entries(text);
  for (std::string entry; std::getline(entries, entry, ';');)
    if (entry.find_first_not_of(" \t") != std::string::npos) groups.push_back(group_of(entry));
  return groups;
}

OptimizerOptions optimizer_of(const config::Config& config, double rate) {
  const auto number = [&](const char* key) { return config.number(key); };
  const std::string& name = config.text("optimizer.name");
  return optim::optimizer_of(name, {.learning_rate = rate,
                                    .weight_decay = number("train.weight_decay"),
                                    .beta1 = number("train.beta1"),
                                    .beta2 = number("train.beta2"),
                                    .epsilon = number("train.epsilon"),
                                    .momentum = number("optimizer.momentum"),
                                    .dampening = number("optimizer.dampening"),
                                    .nesterov = config.boolean("optimizer.nesterov"),
                                    .beta2_decay = number("optimizer.beta2_decay"),
                                    .update_clip = number("optimizer.update_clip"),
                                    .smallest_scale = number("optimizer.smallest_scale"),
                                    .l1 = number("optimizer.l1"),
                                    .groups = parse_groups(config.text("optimizer.groups"))});
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

std::string identity_of(const config::Config& config, std::span<const char* const> keys) {
  std::string identity;
  for (const char* key : keys)
    identity += std::string(key) + " = " + config::to_toml(config.value(key)) + "\n";
  return identity;
}

// Defaults are left out, so that checkpoints from before these keys existed still match.
std::string parts_identity(const config::Config& config) {
  std::vector<const char*> keys;
  for (const char* key : {"data.name", "train.loss"})
    if (!is_default(config, key)) keys.push_back(key);
  return identity_of(config, keys);
}

// Keys that decide the bits only if each rank trains its own copy.
std::string local_identity(const config::Config& config) {
  const std::string& sync = config.text("parallel.sync");
  const ServerOptions server = server_options_of(config);
  if (!parallel::is_local(sync) && !server.alone()) return {};
  std::vector<const char*> keys = {"parallel.sync", "parallel.local_steps",
                                   "parallel.post_local_after"};
  if (server.alone())
    keys = {"parallel.sync", "server.staleness", "server.backup", "server.compensation",
            "server.prediction"};
  if (sync == "diloco") keys.insert(keys.end(), {"parallel.outer_rate", "parallel.outer_momentum"});
  if (sync == "easgd") keys.push_back("parallel.elastic");
  if (sync == "gossip") keys.push_back("parallel.graph");
  return identity_of(config, keys);
}

std::optional<LossScaleOptions> loss_scale_of(const config::Config& config) {
  const std::string& precision = config.text("train.precision");
  if (precision == "fp16")
    return parallel::parse_loss_scale(config.text("train.loss_scale"),
                                      config.number("train.initial_loss_scale"),
                                      config.integer("train.loss_scale_window"));
  for (const char* key : kLossScaleKeys)
    if (!is_default(config, key))
      refuse("config",
             std::string(key) + " = " + shortened(config::to_toml(config.value(key))) +
                 " cannot be combined with train.precision = \"" + precision +
                 "\": gradients are scaled only in fp16",
             "Leave it out, or use fp16.");
  return std::nullopt;
}

// Keys that decide the bits only with fp16.
std::string half_identity(const config::Config& config) {
  return config.text("train.precision") == "fp16" ? identity_of(config, kLossScaleKeys) : "";
}

std::int64_t memory_limit_of(const std::string& limit) {
  if (limit == "none") return kNoMemoryLimit;
  try {
    return static_cast<std::int64_t>(plan::bytes_of(limit));
  } catch (const ConfigError&) {
    throw ConfigError("memory.limit = \"" + shortened(limit) + "\" is not a number of bytes",
                      {.operation = "config",
                       .label = "memory.limit",
                       .advice = "Write it as 8GB, 7.5GiB or 8e9, up to 1e15; 0: what the machine "
                                 "has left; none: no limit at all."});
  }
}

JobOptions job_options_of(const config::Config& config, const std::string& identity) {
  return {.transport = config.text("comm.transport"),
          .algorithm = config.text("comm.algorithm"),
          .timeout = from_seconds(config.number("timeout")),
          .timeout_user_code = from_seconds(config.number("timeout.user_code")),
          .reproducible = config.boolean("train.reproducible"),
          .identity = identity,
          .sockets = static_cast<int>(config.integer("comm.sockets")),
          .rate = static_cast<std::int64_t>(config.number("comm.rate")),
          .interface = config.text("comm.interface")};
}

StrategyOptions strategy_of(const config::Config& config) {
  const auto integer = [&](const char* key) { return config.integer(key); };
  const auto number = [&](const char* key) { return config.number(key); };
  return {.sync = config.text("parallel.sync"),
          .pipeline = static_cast<int>(integer("parallel.pipeline")),
          .data = static_cast<int>(integer("parallel.data")),
          .context = static_cast<int>(integer("parallel.context")),
          .expert = static_cast<int>(integer("parallel.expert")),
          .tensor = static_cast<int>(integer("parallel.tensor")),
          .sequence = config.boolean("parallel.sequence"),
          .schedule = config.text("parallel.schedule"),
          .chunks = static_cast<int>(integer("parallel.chunks")),
          .shard = static_cast<int>(integer("parallel.shard")),
          .precision = config.text("train.precision"),
          .loss_scale = loss_scale_of(config),
          .clip = number("train.clip"),
          .seed = static_cast<std::uint64_t>(integer("train.seed")),
          .bucket_bytes = integer("comm.bucket_bytes"),
          .overlap = config.boolean("parallel.overlap"),
          .compression = config.text("comm.compression"),
          .offload = config.text("memory.offload"),
          .recompute = config.text("memory.recompute"),
          .offload_activations = config.text("memory.offload_activations"),
          .lanes = static_cast<int>(integer("train.lanes")),
          .graphs = config.boolean("train.graphs"),
          .shares = config.text("batch.shares"),
          .local = local_options_of(config),
          .server = server_options_of(config),
          .ema = number("train.ema"),
          .outliers = {.limit = number("train.skip_outliers"),
                       .window = static_cast<int>(integer("train.outlier_window"))},
          .skip_not_finite = integer("train.skip_not_finite"),
          .noise_scale = config.boolean("train.noise_scale")};
}

CheckpointerOptions checkpoints_of(const config::Config& config, const std::string& identity) {
  const auto integer = [&](const char* key) { return config.integer(key); };
  const auto number = [&](const char* key) { return config.number(key); };
  storage::check_address(config.text("checkpoint.path"));
  return {.every = static_cast<long>(integer("checkpoint.every")),
          .keep = static_cast<int>(integer("checkpoint.keep")),
          .identity = identity,
          .memory = static_cast<int>(integer("checkpoint.memory")),
          .memory_every = static_cast<long>(integer("checkpoint.memory_every")),
          .keep_hours = number("checkpoint.keep_hours"),
          .keep_best = static_cast<int>(integer("checkpoint.keep_best")),
          .patience = from_seconds(number("checkpoint.patience"))};
}

}  // namespace

void Settings::set_up_helpers(const config::Config& config) {
  if (config.integer("checkpoint.keep_best") > 0 && config.integer("train.validate_every") == 0)
    refuse("config", "checkpoint.keep_best compares validations, and train.validate_every is 0",
           "Set train.validate_every, in steps.");
  const std::int64_t batch = config.integer("batch.global");
  if (strategy.noise_scale && batch <= config.integer("batch.micro")) {
    refuse("config",
           "train.noise_scale compares micro-batches, and batch.global " + std::to_string(batch) +
               " is one of " + std::to_string(config.integer("batch.micro")),
           "Lower batch.micro.");
  }
  patience = config.integer("train.patience");
  min_improvement = config.number("train.min_improvement");
  if (patience > 0 && config.integer("train.validate_every") == 0) {
    refuse("config", "train.patience counts validations, and train.validate_every is 0",
           "Set train.validate_every, in steps.");
  }
}

Settings::Settings(const config::Config& config) {
  const auto integer = [&](const char* key) { return config.integer(key); };
  const std::string& precision = config.text("train.precision");
  seed = static_cast<std::uint64_t>(integer("train.seed"));
  model = make_model(config);
  check_texts(config);
  if (parallel::is_served(config.text("parallel.sync")))
    servers = static_cast<int>(integer("server.count"));
  strategy = strategy_of(config);
  const auto micro_batches =
      static_cast<std::uint32_t>(integer("batch.global") / integer("batch.micro"));
  const parallel::Shares shares = parallel::parse_shares(strategy.shares);
  if (micro_batches > 0) parallel::check_shares_of(shares, micro_batches);
  strategy_name = config.text("parallel.strategy");
  set_up_helpers(config);
  const std::string identity =
      config.identity() + parts_identity(config) + local_identity(config) + half_identity(config);
  steps = integer("train.steps");
  max_time = parse_time_limit(config.text("train.max_time"));
  schedule = schedule_of(config);
  optimizer = optimizer_of(config, schedule.peak);
  batches = {.batch = integer("batch.global"),
             .micro = integer("batch.micro"),
             .steps = steps,
             .seed = seed};
  checkpoints = checkpoints_of(config, identity);
  job = job_options_of(config, identity);
  elastic = elastic_of(config);
  coordinator_store = config.text("rendezvous.store");
  link = plan::link_of(config.text("comm.link"));
  data_path = config.text("data.path");
  validate_every = integer("train.validate_every");
  validate_samples = integer("train.validate_sequences");
  kernel_threads = static_cast<int>(integer("train.kernel_threads"));
  products = config.text("train.products");
  if (products != "fp32" && precision != "fp32")
    refuse("config",
           "train.products = \"" + products + "\" cannot be combined with train.precision = \"" +
               precision + "\", which says what products are computed in",
           "Leave train.products out, or use fp32.");
  kernel_table = config.text("train.kernel_table");
  sample_bytes = integer("train.sample_bytes");
  device = config.text("train.device");
  ranks_per_device = static_cast<int>(integer("train.ranks_per_device"));
  memory_limit = memory_limit_of(config.text("memory.limit"));
}

}  // namespace trireme::inline v0::train
