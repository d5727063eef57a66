#include "trireme/train/config/elastic_keys.h"

#include <algorithm>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/transports.h"
#include "trireme/base/words.h"
#include "trireme/job/job.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::inline v0::train {
namespace {

constexpr int kRestarts = 100;
constexpr std::int64_t kMostRanks = 65'536;

[[noreturn]] void refuse_elastic(const std::string& what, const std::string& advice) {
  throw ConfigError(what, {.operation = "config", .label = "elastic", .advice = advice});
}

void check_layout(const StrategyOptions& strategy, const JobOptions& job) {
  if (parallel::is_local(strategy.sync))
    refuse_elastic("an elastic job cannot be combined with parallel.sync = \"" + strategy.sync +
                       "\", whose result depends on the number of ranks",
                   "Use " + one_of(parallel::level_names()) + ".");
  if (parallel::shards_in_groups(strategy.sync) && strategy.shard == 0)
    refuse_elastic("an elastic job cannot be combined with parallel.sync = \"" + strategy.sync +
                       "\" that shards within hosts, of which each may lose ranks",
                   "Set parallel.shard.");
  if (job.transport == "mpi" || job.transport == "nccl" || job.transport == "sim")
    refuse_elastic(
        "an elastic job cannot be combined with comm.transport = \"" + job.transport + "\"",
        job.transport == "mpi" ? "A process cannot leave an MPI world: use shm, tcp or mixed, or "
                                 "restart the job with --resume auto."
                               : "Use shm, tcp or mixed.");
}

launch::WorkerRange worker_range(const ElasticSettings& settings, int workers,
                                 const ServerOptions& server) {
  if (server.backup > 0)
    refuse_elastic("an elastic job cannot be combined with server.backup",
                   "Leave elastic.* out: with server.backup a step takes the gradients of a fixed "
                   "number of workers, and one that is lost is started again.");
  if (settings.spares > 0)
    refuse_elastic("elastic.spares cannot be combined with parallel.sync = \"server\"",
                   "Leave it out: a lost worker is started again, and nobody waits for it.");
  const launch::WorkerRange range{.min = settings.min > 0 ? settings.min : workers,
                                  .max = settings.max > 0 ? settings.max : workers};
  if (workers < range.min || workers > range.max)
    refuse_elastic(counted(workers, "worker") + ", but the job is to have " +
                       std::to_string(range.min) + " to " + std::to_string(range.max),
                   "Change --workers, or elastic.min and elastic.max.");
  return range;
}

}  // namespace

void add_elastic_keys(config::Schema& schema) {
  const config::Value none = std::int64_t{0};
  schema.add({"elastic.min", none,
              "The job goes on with this many ranks if others are lost, and takes new ones up; 0 = "
              "as many as at the start. Changes no bit, unless comm.compression is lossy.",
              0, kMostRanks});
  schema.add({"elastic.max", none,
              "The most ranks of an elastic job (`trireme resize`); 0 = as many as at the start.",
              0, kMostRanks});
  schema.add({"elastic.spares", none,
              "Processes that are started, and take the place of a lost rank at once.", 0,
              kMostRanks});
  schema.add({"elastic.restarts", std::int64_t{-1},
              "How many lost processes are started again within an hour; -1 = 100 in a job that is "
              "elastic by another key, otherwise none.",
              -1, 1e9});
  schema.add(
      {"rendezvous.store", std::string(),
       "Where the coordinator, by which ranks meet, keeps its state: a folder, or "
       "etcd://HOST:2379/KEY. Then it is a process of its own, may be killed, and is started "
       "again. Empty: it is a part of the launcher."});
  schema.add({"checkpoint.memory", none,
              "In an elastic job whose ranks have parts of the state (" +
                  joined(parallel::level_names(&parallel::shards_state)) +
                  "; pipeline, tensor and expert ranks; what comm.compression has not sent): how "
                  "many other ranks keep a "
                  "copy in memory of what a rank alone has, so that it survives the rank.",
              0, 64});
  schema.add({"checkpoint.memory_every", std::int64_t{1},
              "Steps between these copies: after a loss the job repeats at most this many.", 1,
              1e9});
}

ElasticSettings elastic_of(const config::Config& config) {
  const auto number = [&](const char* key) { return static_cast<int>(config.integer(key)); };
  const ElasticSettings settings{.min = number("elastic.min"),
                                 .max = number("elastic.max"),
                                 .spares = number("elastic.spares"),
                                 .restarts = number("elastic.restarts")};
  if (settings.min > 0 && settings.max > 0 && settings.min > settings.max)
    refuse_elastic("elastic.min = " + std::to_string(settings.min) +
                       " is more than elastic.max = " + std::to_string(settings.max),
                   "Exchange them.");
  if (!settings.on() && config.integer("checkpoint.memory") > 0)
    refuse_elastic("checkpoint.memory = " + std::to_string(config.integer("checkpoint.memory")) +
                       " in a job that is not elastic, where nobody would read the copies",
                   "Leave it out, or set elastic.min.");
  return settings;
}

int ranks_of_a_copy(const StrategyOptions& strategy) {
  const int shard = parallel::shards_in_groups(strategy.sync) ? std::max(strategy.shard, 1) : 1;
  return strategy.pipeline * strategy.tensor * strategy.context * strategy.expert * shard;
}

RankChanges rank_changes(const ElasticSettings& settings, int ranks,
                         const StrategyOptions& strategy, const JobOptions& job,
                         std::int64_t micro_batches) {
  check_layout(strategy, job);
  if (parallel::is_served(strategy.sync) && strategy.server.alone())
    return {.together = {}, .alone = worker_range(settings, ranks, strategy.server)};
  if (settings.max == 0 && settings.min > ranks)
    refuse_elastic("elastic.min = " + std::to_string(settings.min) + ", but the job has " +
                       counted(ranks, "rank"),
                   "Lower elastic.min, or start with more --ranks.");
  const launch::ElasticOptions options{
      .min = settings.min > 0 ? settings.min : ranks,
      .max = settings.max > 0 ? settings.max : ranks,
      .multiple = ranks_of_a_copy(strategy),
      .stages = strategy.pipeline,
      .spares = settings.spares,
      .restarts = settings.restarts >= 0 ? settings.restarts : kRestarts,
      .silence = launch::silence_of(job.timeout)};
  const launch::ElasticGroup checked(options, ranks);  // throws
  if (options.max / options.multiple > micro_batches)
    refuse_elastic("elastic.max = " + std::to_string(options.max) + ", but a step has " +
                       counted(micro_batches, "micro-batch", "micro-batches"),
                   "Lower elastic.max or batch.micro: each rank computes at least one.");
  return {.together = options, .alone = {}};
}

}  // namespace trireme::inline v0::train
