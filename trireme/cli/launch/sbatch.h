// A batch script for Slurm (`trireme launch --print-sbatch`). Pure.
#pragma once

#include <string>
#include <vector>

namespace trireme::inline v0::cli {

struct SbatchJob {
  std::string name;                  // of the job
  std::vector<std::string> command;  // that each rank runs
  int ranks = 1, nodes = 1;
  std::string time = "12:00:00";
};

/// A script whose job saves a checkpoint before the time limit and queues itself again. ConfigError
/// if the ranks cannot be divided among the nodes, a character of the name is wrong, or the time is
/// none of Slurm's.
std::string sbatch_script(const SbatchJob& job);

}  // namespace trireme::inline v0::cli
