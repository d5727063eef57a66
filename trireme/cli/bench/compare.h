// The data behind `trireme compare`: the runs' curves, speed, and the keys in which they differ.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::inline v0::cli {

struct ComparedRun {
  std::string name, folder;
  std::int64_t steps = 0;                   // done
  std::string items = "tokens";             // or "samples"
  std::string checkpoint;                   // folder of the newest; sought if there are no curves
  std::map<std::string, std::string> keys;  // as TOML writes the values
  std::string loss_unit;                    // empty: the run does not say
  std::vector<std::pair<double, double>> training, validation;  // (step, loss)
  // Per step: seconds, items per second, and seconds spent waiting for communication.
  std::vector<double> step_seconds, per_second, communication_seconds;
  /// By rank: the steps in which it came last, and its seconds behind the others in these.
  struct Late {
    std::int64_t steps = 0;
    double seconds = 0;
  };
  std::map<std::int64_t, Late> late;
  // If workers train on their own: gradients by staleness, and those that were dropped.
  std::map<std::int64_t, std::int64_t> staleness;
  std::int64_t dropped_gradients = 0;
};
/// `folder` is that of a run, a Log or a Checkpointer (find_checkpoint()), or one checkpoint: then
/// the curves end at its step. Without events only weights can be compared. Throws ConfigError if
/// there are neither events nor a checkpoint.
ComparedRun read_run(const std::string& folder);

/// Keys whose values differ between runs, with one value per run ("-" if a run lacks the key).
std::map<std::string, std::vector<std::string>> differing_keys(
    const std::vector<ComparedRun>& runs);

/// The middle of the values (the lower of two); nullopt if there are none.
std::optional<double> median(std::vector<double> values);

/// "rank 2, in 480 of 500 steps, by 20 ms": the rank for which the others waited longest. Empty if
/// the run has one rank.
std::string straggler_text(const ComparedRun& run);

/// The curves of all runs in one plot, as SVG, over the steps or over the seconds that they took.
std::string overlaid(const std::vector<ComparedRun>& runs, bool over_time = false);
/// The staleness of the runs' gradients, side by side, as SVG; empty if no run has it.
std::string staleness_plot(const std::vector<ComparedRun>& runs);
/// The mean staleness of a run's gradients; nullopt if it has none.
std::optional<double> mean_staleness(const ComparedRun& run);

}  // namespace trireme::inline v0::cli
