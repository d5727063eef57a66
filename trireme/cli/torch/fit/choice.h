// Fit: which layouts of a training job fit into a rank's memory, and which one to choose.
//
// Candidates differ in settings that change no bit of the result (docs/numerics.md): which rank
// keeps which shard of the state (parallel.sync), how many micro-batches a rank computes at once
// (train.lanes), and which activations are recomputed (memory.recompute). The user chooses the
// number of ranks. batch.micro is part of the run's identity: a candidate with a smaller one is
// another training, so it is only for a new job that does not fit otherwise. Memory is predicted
// (training_plan.h) and measured for candidates that are tried. Plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::inline v0::cli {

struct FitCandidate {
  std::string sync = "plain";
  int shard = 0;  // hybrid: ranks that share a copy
  int lanes = 1;
  std::string recompute = "none";
  std::int64_t micro = 1;            // samples
  std::int64_t predicted_bytes = 0;  // of the rank that needs most
  double predicted_seconds = 0;      // per step (TrainingPlan::step_seconds); 0: not known
  std::string impossible = {};       // why this layout is impossible
  // Set if it was tried: the peak of the rank that needs most, and the time of a step after the
  // first (the first step also allocates memory and prepares kernels).
  std::optional<std::int64_t> measured_bytes = {};
  std::optional<double> step_seconds = {};
  std::string failure = {};  // how the trial failed; empty: it did not

  std::int64_t bytes() const noexcept { return measured_bytes.value_or(predicted_bytes); }
  bool fits(std::int64_t limit) const noexcept {
    return impossible.empty() && failure.empty() && bytes() <= limit;
  }
  /// "zero3", "hybrid of 2".
  std::string layout() const;
};

/// The candidates to try, in their order: for each layout and batch.micro, the one that fits in the
/// shortest predicted time; among equals, the one with the most lanes.
std::vector<std::size_t> to_try(const std::vector<FitCandidate>& candidates, std::int64_t limit);

/// The fastest candidate that fits; predicted times count only if none was tried. Candidates within
/// 3 % of the fastest count as equal, and the first of them is chosen: candidates are ordered by
/// least communication, then by most lanes. nullopt if none fits.
std::optional<std::size_t> choose_fit(const std::vector<FitCandidate>& candidates,
                                      std::int64_t limit);

/// One line per candidate, with a heading; ends with a newline.
std::string fit_table(const std::vector<FitCandidate>& candidates, std::int64_t limit,
                      std::optional<std::size_t> chosen);

}  // namespace trireme::inline v0::cli
