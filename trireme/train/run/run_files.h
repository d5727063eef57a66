// RunFiles: where a run's files are in its folder. Knows names only, and asks no storage.
#pragma once

#include <string>
#include <utility>

namespace trireme::inline v0::train {

class RunFiles {
 public:
  explicit RunFiles(std::string path) : path_(std::move(path)) {}

  const std::string& path() const noexcept { return path_; }
  std::string config() const { return path_ + "/config.toml"; }
  std::string events() const { return path_ + "/events.jsonl"; }
  std::string plot() const { return path_ + "/loss.svg"; }
  std::string staleness() const { return path_ + "/staleness.svg"; }  // with servers
  std::string passes() const { return path_ + "/passes.jsonl"; }      // of a traced pipeline
  std::string passes_picture() const { return path_ + "/passes.svg"; }
  std::string tensorboard() const { return path_ + "/tensorboard"; }
  /// The place of its checkpoints, unless checkpoint.path of its configuration names another.
  std::string own_checkpoint() const { return path_ + "/checkpoint"; }
  // An evaluator's: its events, a run's folder with the best checkpoint, the one that it evaluates.
  std::string evaluations() const { return path_ + "/evaluator.jsonl"; }
  std::string best() const { return path_ + "/best"; }
  std::string evaluating() const { return path_ + "/evaluating"; }
  /// The number of ranks that an elastic job is to have (`trireme resize`).
  std::string wanted_ranks() const { return path_ + "/wanted_ranks"; }
  /// The facts that processes of others need besides the configuration (`trireme coordinator`).
  std::string worker_spec() const { return path_ + "/worker_spec"; }

 private:
  std::string path_;
};

}  // namespace trireme::inline v0::train
