#include "trireme/cli/torch/training_job.h"

#include <cstdlib>
#include <filesystem>

#include "trireme/base/config/config_variables.h"
#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/cli/launch/shared_options.h"
#include "trireme/cli/torch/fit/candidates.h"
#include "trireme/job/options.h"
#include "trireme/memory/offload_folder.h"
#include "trireme/net/interfaces.h"
#include "trireme/rendezvous/coordinator/state_store.h"
#include "trireme/storage/storage.h"
#include "trireme/sync/sync_plan.h"
#include "trireme/tensor/products/kernel_table.h"
#include "trireme/train/device.h"
#include "trireme/train/plan/job_plan.h"
#include "trireme/train/run/run_folder.h"

namespace trireme::inline v0::cli {

void add_training_options(Command& command, TrainingJobOptions& options) {
  const config::Schema schema = train::training_schema(*train::find_model(train::default_model()));
  const auto choices = [&](const char* key) { return schema.find(key)->choices; };
  const auto listed = [&](const char* key) {  // "comm.transport: auto | shm | ..."
    return key + (": " + joined(choices(key), {}, " | "));
  };
  command.option("CONFIG", options.config, "Configuration (TOML), such as configs/gpt-nano.toml");
  command.option(kWorkersOption, options.ranks, "Processes to train on");
  command
      .option("--servers", options.servers,
              "server.count: parameter servers beside them (and parallel.sync = server)")
      .between(0, kMostProcesses);
  command
      .option("--evaluator", options.evaluators,
              "1: a process that evaluates every checkpoint and keeps the best, while the others "
              "train")
      .between(0, 1);
  add_elastic_options(command, {options.elastic, options.spares, options.restarts, options.store});
  command.option("--transport", options.transport, listed("comm.transport"))
      .completes(choices("comm.transport"));
  command.option("--algorithm", options.algorithm, listed("comm.algorithm"))
      .completes(choices("comm.algorithm"));
  command.option("--link", options.link,
                 "comm.link: latency and rate of the links of --transport sim (25us,1GB/s)");
  command.option("--data", options.data, "data.path: a file or a folder, any bytes").filled();
  std::vector<std::string> keys;
  for (const config::Key& key : schema.keys()) keys.push_back(key.name + "=");
  command.option("--set", options.set, "key=value, as often as wanted")
      .repeatable()
      .completes(std::move(keys));
}

namespace {

// Checks what the job needs of this machine: transport, network interface, folders.
void check_surroundings(const train::Settings& settings, const TrainingJobOptions& options) {
  job::check_transport(settings.job, options.ranks, options.under_mpirun);
  if (!settings.job.interface.empty() && options.ranks > 1 && settings.job.transport != "sim")
    net::choose_address(net::interfaces(), settings.job.interface, false);
  for (const auto& [key, folder] :
       {std::pair{"memory.offload", settings.strategy.offload},
        {"memory.offload_activations", settings.strategy.offload_activations}})
    if (!folder.empty() && folder != memory::kOnHost) memory::check_offload_folder(key, folder);
  if (!settings.coordinator_store.empty()) rendezvous::make_store(settings.coordinator_store);
}

// --servers: server.count, and parallel.sync = server unless something says otherwise.
void take_servers(config::Config& config, int servers, const std::string& starter) {
  if (servers < 0) return;
  const std::string option = starter.empty() ? "--servers " + std::to_string(servers)
                                             : starter + " started " + counted(servers, "server");
  const std::string& sync = config.text("parallel.sync");
  const std::string source = config.source("parallel.sync");
  const bool served = parallel::is_served(sync);
  if (served != (servers > 0) && (served || source != "default"))
    refuse("config",
           option + (starter.empty() ? " cannot be combined with" : ", but") +
               " parallel.sync = \"" + sync + "\" (" + source + ")",
           served ? "Give at least 1, or another parallel.sync."
                  : "Leave out one of them: servers need parallel.sync = "
                    "\"server\".");
  if (servers == 0) return;
  if (config.source("server.count") == "parallel.strategy" &&
      config.integer("server.count") != servers)
    refuse("config",
           option + ", but parallel.strategy = \"" + config.text("parallel.strategy") +
               "\" has server.count = " + std::to_string(config.integer("server.count")),
           "Leave out one of them.");
  const std::string source_of_servers = starter.empty() ? "--servers" : starter;
  if (!served) config.assign("parallel.sync", "server", source_of_servers);
  config.assign("server.count", static_cast<std::int64_t>(servers), source_of_servers);
}

// --elastic MIN:MAX, --spares and --restarts: elastic.*. --store: rendezvous.store.
void take_elastic(config::Config& config, const TrainingJobOptions& options) {
  const auto set = [&](const char* key, std::int64_t value, const char* option) {
    config.assign(key, value, option);
  };
  if (!options.elastic.empty()) {
    const auto [min, max] = parse_elastic(options.elastic);
    set("elastic.min", min, "--elastic");
    set("elastic.max", max, "--elastic");
  }
  if (options.spares > 0) set("elastic.spares", options.spares, "--spares");
  if (options.restarts >= 0) set("elastic.restarts", options.restarts, "--restarts");
  if (!options.store.empty()) config.assign("rendezvous.store", options.store, "--store");
}

// A plan may be for a GPU that is not here.
train::DeviceChoice device_of(const train::Settings& settings, const TrainingJobOptions& options,
                              int ranks_here) {
  if (!options.device.empty() && plan::find_accelerator(settings.device) != nullptr)
    return {"cuda", ""};
  if (!options.device.empty() && options.device != "auto" && options.device != "cpu")
    refuse("plan", "--device " + options.device + " is no GPU that plans know",
           "Use one of: cpu, " + plan::accelerator_names() + ".");
  // Simulated ranks share what is there.
  const int ranks = settings.job.transport == "sim" ? 1 : ranks_here;
  return train::choose_device(settings.device, train::devices_here(), ranks,
                              settings.ranks_per_device);
}

plan::TrainingPlan planned(const train::Settings& settings, const input::Corpus& corpus,
                           const std::string& name, const TrainingJobOptions& options) {
  const int here = options.ranks_on_this_host();
  if (!options.predicts_time || settings.job.transport == "sim" || settings.device_kind != "cpu")
    return train::plan_training(settings, corpus, name, options.ranks, here);
  train::program_bytes(corpus);  // before kernels are measured
  train::KernelSpeeds speeds =
      train::speeds_here(settings, here * settings.strategy.lanes, say_calibrating);
  plan::TrainingPlan plan =
      train::plan_training(settings, corpus, name, options.ranks, here, &speeds);
  speeds.save();
  return plan;
}

void check_start(const TrainingJobOptions& options) {
  if (options.config.empty())
    refuse("config", "no configuration was given", "Name one, such as configs/gpt-nano.toml.");
  if (options.ranks < 1 || options.ranks > kMostProcesses) {
    refuse("config", "--ranks " + std::to_string(options.ranks) + " is out of range",
           "It must be at least 1 and at most " + std::to_string(kMostProcesses) + ".");
  }
}

// The run's saved configuration must mean the same from any folder.
void make_paths_whole(config::Config& config) {
  for (const char* key : {"data.path", "train.kernel_table", "parallel.schedule", "memory.offload",
                          "memory.offload_activations", "checkpoint.path"}) {
    const std::string path = config.text(key), source = config.source(key);
    const std::string_view group = key;
    const bool is_name =
        (group.starts_with("memory.") && path == memory::kOnHost) ||
        (group == "checkpoint.path" && storage::has_scheme(path)) ||
        (group == "parallel.schedule" && path.find_first_of("./") == std::string::npos);
    if (path.empty() || is_name) continue;
    std::error_code error;
    const auto whole = std::filesystem::absolute(path, error);
    if (error)  // the folder was deleted
      throw ConfigError(
          "the working folder has no path: " + error.message(),
          {.operation = "config", .label = key, .advice = "Change to one that is there."});
    config.assign(key, whole.lexically_normal().string(), source);
  }
}

}  // namespace

config::Config training_configuration(const TrainingJobOptions& options) {
  config::Config config = train::read_config(
      options.config, [](const char* name) { return static_cast<const char*>(std::getenv(name)); },
      options.set);
  train::leave_servers(config, options.config);
  train::restore_sources(config, options.config);
  config::check_variables(config.schema(), config::environment_names());
  const auto flag = [&](const std::string& key, const std::string& value, const char* source) {
    if (!value.empty()) config.assign(key, value, source);
  };
  flag("comm.transport", options.transport, "--transport");
  flag("comm.algorithm", options.algorithm, "--algorithm");
  flag("comm.link", options.link, "--link");
  const std::string& transport = config.text("comm.transport");
  if (!options.link.empty() && transport != "sim")
    refuse("config", "--link is a simulated network's, but the transport is " + transport,
           "Add --transport sim, or leave --link out.");
  flag("data.path", options.data, "--data");
  take_servers(config, options.servers, options.starter);
  take_elastic(config, options);
  make_paths_whole(config);
  flag("train.device", options.device, "--device");
  return config;
}

void say_calibrating() { say(true, "calibrating this machine (about 1 s)"); }

TrainingJob prepare(const TrainingJobOptions& options, const Refine& refine) {
  check_start(options);
  config::Config config = training_configuration(options);
  train::Settings settings(config);
  // Check these here, before any rank starts.
  const int ranks_here = options.ranks_on_this_host();
  const train::DeviceChoice device = device_of(settings, options, ranks_here);
  settings.device_kind = device.kind;
  train::check_products(settings.products, device.kind);
  train::check_graphs(settings.strategy.graphs, device.kind);
  train::check_transport(settings.job.transport, device.kind, settings.ranks_per_device);
  if (!settings.kernel_table.empty()) tensor::read_kernel_table(settings.kernel_table);
  if (settings.elastic.on())
    train::rank_changes(settings.elastic, options.ranks, settings.strategy, settings.job,
                        settings.batches.batch / settings.batches.micro);
  check_surroundings(settings, options);
  const std::string name =
      options.name.empty() ? std::filesystem::path(options.config).stem().string() : options.name;
  const input::Corpus corpus = settings.model.data->load(settings.data_path);
  if (refine) {
    refine(config, settings, corpus);
    settings = train::Settings(config);
    settings.device_kind = device.kind;
  }
  plan::TrainingPlan plan = planned(settings, corpus, name, options);
  plan.job.evaluator = options.evaluators > 0;
  if (options.server_hosts > 0)
    plan.job.servers_here = (plan.job.servers + options.server_hosts - 1) / options.server_hosts;
  if (settings.memory_limit != train::kNoMemoryLimit) {
    const MemoryLeft left = memory_of_host();
    plan.job.host_memory = left.bytes;
    plan.job.host_memory_reason = left.reason;
  }
  return {config, std::move(plan), input::SharedCorpus::make(corpus), settings.model.context > 0,
          device};
}

}  // namespace trireme::inline v0::cli
