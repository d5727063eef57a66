// What `trireme train` refuses before anything starts. Each check throws ConfigError; train.cc calls them as
// soon as their arguments are known.
#pragma once

#include <string>
#include <vector>

#include "trireme/cli/command.h"
#include "trireme/cli/host_options.h"
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
  bool backup = false;    // --resume auto; the last checkpoint alone stays
  bool trial = false;     // started by --fit: run and measure two steps
  bool validate = false;  // rank 0 does, although there is an evaluator
};

/// Options that do not go together, or are empty.
void check_options(const Command& command, const TrainOptions& options);
/// The files of --trace and --profile are written late: that they can be.
void check_writable(const std::string& option, const std::string& path);
/// The numbers of processes, of which a launcher or a coordinator knows, at `place`.
void check_ranks(const TrainingJobOptions& options, const rendezvous::RankEnvironment& place);
/// That the servers which a configuration asks for are there, or none.
void check_servers(const TrainingJob& job, const rendezvous::RankEnvironment& place);
/// Whether workers train on their own: `trireme coordinator --workers` is for these, --elastic for others.
void check_pace(const TrainingJob& job, const rendezvous::RankEnvironment& place);
/// Transport sim under a launcher.
void check_transport(const TrainingJob& job, const rendezvous::RankEnvironment& place);
/// A job that needs more than memory.limit or than this host has. Shows what would fit.
void check_memory(const TrainingJob& job, const FitOptions& options);
/// -H where something else places the ranks.
void check_hosts(const TrainingJob& job, const launch::HostOptions& hosts, bool launched);
/// rendezvous.store without a coordinator of this command's. `own_ranks`: `train` starts the ranks.
void check_store(const TrainingJob& job, bool own_ranks);

}  // namespace trireme::inline v0::cli
