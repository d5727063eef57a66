// Shares: how many of a batch's micro-batches each rank computes (batch.shares), the choice of them
// by measured times, and which rank comes last. They change no bit (docs/numerics.md). Values; not
// thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/strategy/strategy.h"
#include "trireme/sync/agreement.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::inline v0::parallel {

struct Shares {
  bool automatic = false;
  std::vector<std::uint32_t> weights = {};  // of each rank; empty: equal
};
/// "equal", "auto", or weights such as "3:2:1". Throws ConfigError with one sentence.
Shares parse_shares(const std::string& text);

/// Sets the weights of `plan` for the value of batch.shares. Throws ConfigError, naming `rank` (-1:
/// none), if they do not fit the plan or the job's `ranks`.
void set_shares(SyncPlan& plan, const std::string& shares, int ranks, int rank = -1);

/// Throws ConfigError if a rank has none of the `micro_batches` of a batch.
void check_shares_of(const Shares& shares, std::uint32_t micro_batches);

/// The first of `ranks` ranks with a share of a batch of `total` micro-batches, if another has none;
/// else -1.
int first_of_some(const kernel::Assignment& assignment, std::uint32_t total, int ranks);

/// The counts, at least 1 each, that minimize the largest count x seconds. `total` >= the ranks.
std::vector<std::uint32_t> best_counts(std::span<const double> micro_seconds, std::uint32_t total);

/// Which rank came last to a step's vote, and by how much.
struct Arrival {
  int rank = -1;      // -1: there is one rank only
  Duration behind{};  // the median of the other ranks (the lower of two)
};
/// Compares RankTime::busy of all ranks. Every rank names the same one: of equal ones the lowest.
Arrival last_of(std::span<const RankTime> times);

/// Decides when shares change, by observed votes alone, so that all ranks change in the same step.
///
/// The median of kWindow steps counts, so that a single slow step changes nothing. The first step
/// after a change is left out. Shares change only if the expected step is at least kGain shorter;
/// then a new window begins, so they do not flap.
class ShareBalance {
 public:
  static constexpr std::size_t kWindow = 6;
  static constexpr double kGain = 0.1;

  /// The last step had `total` micro-batches, dealt by `now`. Returns new shares, if any.
  std::optional<ShareChange> observe(std::span<const RankTime> times,
                                     const kernel::LeafShares& now);

 private:
  std::optional<ShareChange> decide(const kernel::LeafShares& now) const;

  std::uint32_t largest_ = 0;                 // micro-batches of a full batch
  bool settled_ = false;                      // the first step since the start or a change is over
  std::vector<std::vector<double>> seconds_;  // of a micro-batch: by rank, then by step
};

}  // namespace trireme::inline v0::parallel
