// Shared by `train` and `plan`: options, the checked configuration, the corpus and the plan.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/config/config.h"
#include "trireme/cli/command.h"
#include "trireme/input/shared_corpus.h"
#include "trireme/plan/training_plan.h"
#include "trireme/train/config/schema.h"
#include "trireme/train/device.h"

namespace trireme::inline v0::cli {

struct TrainingJobOptions {
  std::string config, name;  // `name` of the run; empty = the configuration's file name
  int ranks = 1;
  bool ranks_given = false;  // --ranks; the caller sets it
  int ranks_here = 0;        // ranks on this host; 0 = all
  int servers = -1;          // --servers; -1: not given
  int server_hosts = 1;      // over which servers are distributed; 0: others place them
  std::string starter;       // of the servers: "TFJob"; empty: this command
  int evaluators = 0;        // --evaluator: 0 or 1
  std::string elastic;       // "2:8"
  std::string store;         // rendezvous.store
  int spares = 0, restarts = -1;
  bool under_mpirun = true;  // `plan` does not know how `train` will be started
  bool predicts_time = true;
  std::string transport, algorithm, link, data;
  std::string device;  // `plan --device`
  std::vector<std::string> set;

  int ranks_on_this_host() const { return ranks_here > 0 ? ranks_here : ranks; }
};
void add_training_options(Command& command, TrainingJobOptions& options);

struct TrainingJob {
  config::Config config;
  plan::TrainingPlan plan;
  std::shared_ptr<const input::SharedCorpus> corpus;
  bool writes_text = false;
  train::DeviceChoice device;
};
/// The configuration by the options' file, the environment and the options. Its values may not fit
/// together.
config::Config training_configuration(const TrainingJobOptions& options);
/// Says on standard error that kernels are measured now.
void say_calibrating();
/// May change the configuration after the data has been read (--fit).
using Refine = std::function<void(config::Config& config, const train::Settings& settings,
                                  const input::Corpus& corpus)>;
/// Reads the configuration and the data and checks them before any rank starts. Throws ConfigError.
TrainingJob prepare(const TrainingJobOptions& options, const Refine& refine = {});

}  // namespace trireme::inline v0::cli
