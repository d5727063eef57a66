// Fit: which layouts of a training job fit into a rank's memory, and which of those to take.
//
// A candidate differs from the others in what changes no bit (NUMERICS.md): who keeps which part of
// the state (parallel.sync), how many micro-batches a rank computes at once (train.lanes), which
// activations are computed again (memory.recompute); the number of ranks is the user's. batch.micro
// is part of the identity: a candidate with a smaller one is another training, for a new job alone
// and only where nothing fits otherwise. What a candidate needs is predicted (training_plan.h) and,
// for those that are tried, measured. Plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace plan {

struct FitCandidate {
  std::string sync = "plain";
  int shard = 0;  // of hybrid: ranks that share a copy
  int lanes = 1;
  std::string recompute = "none";
  std::int64_t micro = 1;            // samples
  std::int64_t predicted_bytes = 0;  // of the rank with most
  double predicted_seconds = 0;      // of a step (TrainingPlan::step_seconds); 0: not known
  std::string impossible = {};       // why it cannot be at all
  // Where it was tried: the rank with most at its highest, and a step after the first, which pays
  // for memory and kernels.
  std::optional<std::int64_t> measured_bytes = {};
  std::optional<double> step_seconds = {};
  std::string failure = {};  // how the trial ended, where it did not end well

  std::int64_t bytes() const noexcept { return measured_bytes.value_or(predicted_bytes); }
  bool fits(std::int64_t limit) const noexcept {
    return impossible.empty() && failure.empty() && bytes() <= limit;
  }
  /// "zero3", "hybrid of 2".
  std::string layout() const;
};

/// Those worth trying: of each layout and batch.micro that fits by prediction, the one that is
/// predicted to be fastest, then the one with most lanes. In the order of the candidates.
std::vector<std::size_t> to_try(const std::vector<FitCandidate>& candidates, std::int64_t limit);

/// The fastest of those that fit, by prediction where none was tried; the first of several within 3
/// % of it: candidates come with the least communication first, most lanes first. None where none
/// fits.
std::optional<std::size_t> choose_fit(const std::vector<FitCandidate>& candidates,
                                      std::int64_t limit);

/// A line for each candidate, with a heading; ends with a newline.
std::string fit_table(const std::vector<FitCandidate>& candidates, std::int64_t limit,
                      std::optional<std::size_t> chosen);

}  // namespace plan
}  // namespace v0
}  // namespace trireme
