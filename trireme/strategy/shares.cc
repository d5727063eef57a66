#include "trireme/strategy/shares.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/parse_number.h"
#include "trireme/base/shortened.h"
#include "trireme/base/words.h"

namespace trireme::inline v0 {
namespace parallel {
namespace {

constexpr std::uint32_t kMostWeight = 1'000'000;

[[noreturn]] void refuse_text(const std::string& text) {
  throw ConfigError("batch.shares = \"" + shortened(text) + "\" is not a list of shares",
                    {.operation = "config",
                     .label = "batch.shares",
                     .advice = "Use equal, auto, or a weight from 1 to " + grouped(kMostWeight) +
                               " for each rank, such as 3:2:1."});
}

// The lower one of two middle values.
template <class T>
T lower_median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double slowest(std::span<const double> micro_seconds, std::span<const std::uint32_t> counts) {
  double longest = 0;
  for (std::size_t rank = 0; rank < counts.size(); ++rank)
    longest = std::max(longest, micro_seconds[rank] * counts[rank]);
  return longest;
}

// The rank that differs from all others, which are alike; -1: there is none.
int odd_rank(std::span<const double> seconds) {
  constexpr double kAlike = 1.25;
  for (std::size_t odd = 0; odd < seconds.size(); ++odd) {
    double least = INFINITY, most = 0;
    for (std::size_t rank = 0; rank < seconds.size(); ++rank) {
      if (rank == odd) continue;
      least = std::min(least, seconds[rank]);
      most = std::max(most, seconds[rank]);
    }
    const bool differs = seconds[odd] > most * kAlike || seconds[odd] * kAlike < least;
    if (most <= least * kAlike && differs) return static_cast<int>(odd);
  }
  return -1;
}

std::string speeds_text(std::span<const double> seconds) {
  const int odd = odd_rank(seconds);
  if (odd >= 0) {
    std::vector<double> others(seconds.begin(), seconds.end());
    others.erase(others.begin() + odd);
    const std::string who =
        others.size() > 1 ? "the others" : "rank " + std::to_string(odd == 0 ? 1 : 0);
    return "rank " + std::to_string(odd) + " computes a micro-batch in " +
           duration_text(seconds[static_cast<std::size_t>(odd)]) + ", " + who + " in " +
           duration_text(lower_median(others));
  }
  return "ranks compute a micro-batch in " + joined(seconds, duration_text);
}

}  // namespace

Shares parse_shares(const std::string& text) {
  if (text == "equal") return {};
  if (text == "auto") return {.automatic = true};
  Shares shares;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(':', at), text.size());
    const auto weight = parse_number<std::uint32_t>(std::string_view(text).substr(at, end - at));
    if (!weight || *weight < 1 || *weight > kMostWeight) refuse_text(text);
    shares.weights.push_back(*weight);
    at = end + 1;
  }
  return shares;
}

// A share may have any size if it is contiguous: if ranks do not go in rounds.
void set_shares(SyncPlan& plan, const std::string& shares, int ranks, int rank) {
  const Shares given = parse_shares(shares);
  if (!given.automatic && given.weights.empty()) return;
  const auto refuse = [&](const std::string& why, const std::string& advice) {
    throw ConfigError("batch.shares = \"" + shares + "\"" + why,
                      {.rank = rank, .operation = "strategy", .advice = advice});
  };
  if (plan.local || plan.served || goes_in_rounds(plan.sync))
    refuse(" cannot be combined with parallel.sync = \"" + plan.sync + "\"" +
               (plan.shards_gradients() ? ", whose ranks go through micro-batches together" : ""),
           "Use equal, or parallel.sync = \"" +
               joined(level_names(&goes_in_rounds, false), {}, "\" or \"") + "\".");
  if (plan.assignment.size() != ranks)
    refuse(
        " cannot be used where several ranks compute a micro-batch together (parallel.pipeline, "
        "tensor, context or expert)",
        "Use equal there.");
  if (!given.automatic && given.weights.size() != static_cast<std::size_t>(ranks))
    refuse(" has " + counted(static_cast<std::int64_t>(given.weights.size()), "weight") +
               ", but the job has " + counted(ranks, "rank"),
           "Give one weight for each rank.");
  plan.assignment.weights = given.weights;
}

void check_shares_of(const Shares& shares, std::uint32_t micro_batches) {
  const int ranks = static_cast<int>(shares.weights.size());
  const kernel::LeafShares leaves(micro_batches, shares.weights);
  for (int rank = 0; rank < ranks; ++rank) {
    if (leaves.of(ranks, rank).count > 0) continue;
    throw ConfigError("batch.shares gives rank " + std::to_string(rank) + " none of the " +
                          counted(micro_batches, "micro-batch", "micro-batches") + " of a step",
                      {.operation = "config",
                       .label = "batch.shares",
                       .advice = "Give it a larger weight, use a smaller batch.micro or a larger "
                                 "batch.global."});
  }
}

int first_of_some(const kernel::Assignment& assignment, std::uint32_t total, int ranks) {
  int first = -1, with_share = 0;
  for (int rank = ranks - 1; rank >= 0; --rank) {
    if (leaves_of(assignment, total, rank).empty()) continue;
    first = rank;
    ++with_share;
  }
  return with_share < ranks ? first : -1;
}

// Gives one micro-batch after the other to the rank that would end first with it. For micro-batches
// of equal size, no other division ends earlier.
std::vector<std::uint32_t> best_counts(std::span<const double> micro_seconds, std::uint32_t total) {
  std::vector<std::uint32_t> counts(micro_seconds.size(), 1);
  for (auto given = static_cast<std::uint32_t>(counts.size()); given < total; ++given) {
    std::size_t best = 0;
    const auto end_of = [&](std::size_t rank) { return micro_seconds[rank] * (counts[rank] + 1); };
    for (std::size_t rank = 1; rank < counts.size(); ++rank)
      if (end_of(rank) < end_of(best)) best = rank;
    ++counts[best];
  }
  return counts;
}

Arrival last_of(std::span<const RankTime> times) {
  if (times.size() < 2) return {};
  const auto last = std::max_element(times.begin(), times.end(),
                                     [](const auto& a, const auto& b) { return a.busy < b.busy; });
  std::vector<Duration> others;
  for (auto at = times.begin(); at != times.end(); ++at)
    if (at != last) others.push_back(at->busy);
  return {static_cast<int>(last - times.begin()), last->busy - lower_median(others)};
}

std::optional<ShareChange> ShareBalance::observe(std::span<const RankTime> times,
                                                 const kernel::LeafShares& now) {
  if (times.size() < 2 || now.total < times.size() || now.total < largest_) return {};
  largest_ = now.total;
  if (!std::exchange(settled_, true)) return {};
  seconds_.resize(times.size());
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    const double passes = to_seconds(times[rank].passes);
    seconds_[rank].push_back(passes / std::max<std::uint32_t>(times[rank].micro_batches, 1));
  }
  if (seconds_.front().size() < kWindow) return {};
  const auto change = decide(now);
  seconds_.clear();
  settled_ = !change;
  return change;
}

std::optional<ShareChange> ShareBalance::decide(const kernel::LeafShares& now) const {
  ShareChange change;
  std::vector<std::uint32_t> current;
  const int ranks = static_cast<int>(seconds_.size());
  for (int rank = 0; rank < ranks; ++rank) {
    change.micro_seconds.push_back(lower_median(seconds_[static_cast<std::size_t>(rank)]));
    current.push_back(now.of(ranks, rank).count);
  }
  change.shares = best_counts(change.micro_seconds, now.total);
  change.step_seconds = slowest(change.micro_seconds, change.shares);
  change.step_seconds_before = slowest(change.micro_seconds, current);
  if (change.step_seconds >= (1 - kGain) * change.step_seconds_before) return {};
  return change;
}

}  // namespace parallel

std::string ShareChange::text() const {
  std::string counts;
  std::uint32_t total = 0;
  for (const std::uint32_t count : shares) {
    counts += " " + std::to_string(count);
    total += count;
  }
  return parallel::speeds_text(micro_seconds) + ": shares" + counts + " of " +
         std::to_string(total) + ", expected step " + duration_text(step_seconds) + " instead of " +
         duration_text(step_seconds_before);
}

}  // namespace trireme::inline v0
