// The keys of elastic jobs, elastic.*, and what they mean together.
#pragma once

#include "trireme/base/config/config.h"
#include "trireme/job/job.h"
#include "trireme/launch/elastic_group.h"
#include "trireme/strategy/strategy.h"

namespace trireme::inline v0::train {

/// The elastic keys of a configuration. on() says whether the job is elastic at all.
struct ElasticSettings {
  int min = 0, max = 0;  // 0: as many ranks as at the start
  int spares = 0;
  int restarts = -1;  // -1: kRestarts if the job is elastic by another key
  bool on() const noexcept { return min > 0 || max > 0 || spares > 0 || restarts > 0; }
};

/// elastic.*, rendezvous.store and checkpoint.memory*.
void add_elastic_keys(config::Schema& schema);
ElasticSettings elastic_of(const config::Config& config);
/// Ranks that together have one copy of the model and change only together.
int ranks_of_a_copy(const StrategyOptions& strategy);
/// How the number of ranks may change that train together, or of workers that train on their own.
struct RankChanges {
  std::optional<launch::ElasticOptions> together;
  std::optional<launch::WorkerRange> alone;
};
/// For a job that starts with `ranks`. Throws ConfigError if the job cannot be elastic, or not
/// with these numbers. `micro_batches`: in a global batch.
RankChanges rank_changes(const ElasticSettings& settings, int ranks,
                         const StrategyOptions& strategy, const JobOptions& job,
                         std::int64_t micro_batches);

}  // namespace trireme::inline v0::train
