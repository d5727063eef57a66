#include "trireme/cli/training_job.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/tensor/kernel_table.h"
#include "trireme/train/device.h"
#include "trireme/train/job_plan.h"

namespace trireme {
inline namespace v0 {
namespace cli {

void add_training_options(CLI::App& command, Invocation& invocation, TrainingJobOptions& options) {
  const config::Schema schema = train::training_schema(*train::find_model(train::default_model()));
  const auto choices = [&](const char* key) { return schema.find(key)->choices; };
  command.add_option("CONFIG", options.config,
                     "Configuration (TOML), such as configs/gpt-nano.toml");
  command.add_option(command::kRanksOption, options.ranks, "Processes to train on")
      ->capture_default_str();
  invocation.words[command.add_option("--transport", options.transport,
                                      "comm.transport: auto | shm | tcp | mixed | mpi | sim")] =
      choices("comm.transport");
  invocation.words[command.add_option(
      "--algorithm", options.algorithm,
      "comm.algorithm: auto | direct | ring | naive | all_pairs | central | tree | double_tree | "
      "halving_doubling | hierarchical | mpi-native")] = choices("comm.algorithm");
  command.add_option("--link", options.link,
                     "comm.link: latency and rate of the links of --transport sim (25us,1GB/s)");
  command.add_option("--data", options.data, "data.path: a file or a folder, any bytes");
  std::vector<std::string>& keys =
      invocation.words[command.add_option("--set", options.set, "key=value, as often as wanted")
                           ->allow_extra_args(false)];
  for (const config::Key& key : schema.keys()) keys.push_back(key.name + "=");
}

TrainingJob prepare(const TrainingJobOptions& options, const Refine& refine) {
  if (options.config.empty()) {
    throw ConfigError(
        "no configuration was given",
        {.operation = "config", .advice = "Name one, such as configs/gpt-nano.toml."});
  }
  if (options.ranks < 1) {
    throw ConfigError("--ranks " + std::to_string(options.ranks) + " is out of range",
                      {.operation = "config", .advice = "It must be at least 1."});
  }
  config::Config config = train::read_config(
      options.config, [](const char* name) { return static_cast<const char*>(std::getenv(name)); },
      options.set);
  const auto flag = [&](const std::string& key, const std::string& value, const char* source) {
    if (!value.empty()) config.assign(key, value, source);
  };
  flag("comm.transport", options.transport, "--transport");
  flag("comm.algorithm", options.algorithm, "--algorithm");
  flag("comm.link", options.link, "--link");
  flag("data.path", options.data, "--data");
  // The run's own configuration must mean the same from any folder.
  for (const char* key : {"data.path", "train.kernel_table", "parallel.schedule", "memory.offload",
                          "memory.offload_activations"}) {
    const std::string path = config.text(key), source = config.source(key);
    const bool is_name = key == std::string_view("parallel.schedule") &&
                         path.find_first_of("./") == std::string::npos;
    if (path.empty() || is_name) continue;
    config.assign(key, std::filesystem::absolute(path).lexically_normal().string(), source);
  }
  train::Settings settings(config);
  // Refused here, before any rank starts.
  const std::string device_note =
      train::choose_device(settings.device, train::devices_here(), options.ranks);
  if (!settings.kernel_table.empty()) tensor::read_kernel_table(settings.kernel_table);
  const std::string name =
      options.name.empty() ? std::filesystem::path(options.config).stem().string() : options.name;
  const input::Corpus corpus = settings.model.data->load(settings.data_path);
  if (refine) {
    refine(config, settings, corpus);
    settings = train::Settings(config);
  }
  return {config, train::plan_training(settings, corpus, name, options.ranks),
          input::SharedCorpus::make(corpus), settings.model.context > 0, device_note};
}

}  // namespace cli
}  // namespace v0
}  // namespace trireme
