// What `trireme compare` says of runs: their curves, speed, and the keys in which they differ.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace command {

struct ComparedRun {
  std::string name, folder;
  std::int64_t steps = 0;                                       // done
  std::string items = "tokens";                                 // or "samples"
  std::string model;                                            // file of the newest checkpoint
  std::map<std::string, std::string> keys;                      // as TOML writes the values
  std::string loss_unit;                                        // empty: the run does not say
  std::vector<std::pair<double, double>> training, validation;  // (step, loss)
  // Of every step: time, tokens/s, and what of the time was waiting for others.
  std::vector<double> step_seconds, per_second, communication_seconds;
};
/// `folder`: a run's, a Log's or a Checkpointer's (find_checkpoint()), or one checkpoint of them,
/// whose curves end with its step. Without events there are no curves, and `model` is what can be
/// compared. Throws ConfigError where it holds neither.
ComparedRun read_run(const std::string& folder);

/// Keys whose values are not the same in all runs, each with a value per run ("-" where a run has
/// no such key).
std::map<std::string, std::vector<std::string>> differing_keys(
    const std::vector<ComparedRun>& runs);

/// The middle one of sorted values (the lower of two); none of no values.
std::optional<double> median(std::vector<double> values);

/// The curves of all runs over one another, as SVG.
std::string overlaid(const std::vector<ComparedRun>& runs);

}  // namespace command
}  // namespace v0
}  // namespace trireme
