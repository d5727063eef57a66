// The checks of `trireme train` before anything starts. Each throws ConfigError; train.cc calls it
// as soon as its arguments are known.
#pragma once

#include <string>
#include <vector>

#include "trireme/cli/command.h"
#include "trireme/cli/launch/shared_options.h"
#include "trireme/cli/torch/fit/fit.h"
#include "trireme/cli/torch/training_job.h"
#include "trireme/launch/launch.h"
#include "trireme/rendezvous/launchers/environment.h"

namespace trireme::inline v0::cli {

struct TrainOptions {
  TrainingJobOptions job;
  HostArguments hosts;
  std::string out, resume, trace, profile;
  std::vector<std::string> changed;  // keys
  bool json = false, help_config = false, fit = false;
  bool backup = false;    // --resume auto; only the last checkpoint is kept
  bool trial = false;     // started by --fit: run and measure two steps
  bool validate = false;  // rank 0 validates although there is an evaluator
};

/// Refuses options that do not go together, or are empty.
void check_options(const Command& command, const TrainOptions& options);
/// Refuses a file of --trace or --profile, which is written late, if it cannot be written.
void check_writable(const std::string& option, const std::string& path);
/// Refuses numbers of processes other than those that the launcher of `place` has started.
void check_ranks(const TrainingJobOptions& options, const rendezvous::RankEnvironment& place);
/// Refuses a configuration with another number of servers than there are.
void check_servers(const TrainingJob& job, const rendezvous::RankEnvironment& place);
/// Refuses workers that train on their own under `trireme coordinator --elastic`, and workers that
/// train together under --workers.
void check_pace(const TrainingJob& job, const rendezvous::RankEnvironment& place);
/// Refuses transport sim under a launcher.
void check_transport(const TrainingJob& job, const rendezvous::RankEnvironment& place);
/// Refuses a job that needs more than memory.limit or than this host has, and shows what would fit.
void check_memory(const TrainingJob& job, const FitOptions& options);
/// Refuses -H if something else places the ranks.
void check_hosts(const TrainingJob& job, const launch::HostOptions& hosts, bool launched);
/// Refuses rendezvous.store unless `train` starts the coordinator (`own_coordinator`).
void check_store(const TrainingJob& job, bool own_coordinator);

}  // namespace trireme::inline v0::cli
