#include "trireme/cli/torch/fit/candidates.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/observe/machine.h"
#include "trireme/sync/sync_plan.h"
#include "trireme/train/plan/job_plan.h"

namespace trireme::inline v0::cli {
namespace {

struct Layout {
  std::string sync;
  int shard = 0;
  int gathers = 0;  // ranks among which weights are gathered
};

// Whether the user set this key on the command line or in the environment.
bool insisted(const config::Config& config, const char* key) {
  const std::string& source = config.source(key);
  return source == "--set" || source.starts_with("TRIREME_");
}

// Least communication first. ZeRO-1 sends as much as plain; ZeRO-2 reduces after every micro-batch;
// others also gather the weights twice, hybrid among fewer ranks.
std::vector<Layout> layouts(const config::Config& config, const train::Settings& settings,
                            int ranks) {
  if (insisted(config, "parallel.sync")) return {{settings.strategy.sync, settings.strategy.shard}};
  const StrategyOptions& given = settings.strategy;
  const int data =
      ranks / std::max(1, given.pipeline * given.expert * given.context * given.tensor);
  if (data <= 1) return {{StrategyOptions{}.sync}};
  std::vector<Layout> all;
  for (const std::string& sync : parallel::level_names()) {
    const bool gathers = parallel::shards_weights(sync);
    if (!parallel::shards_in_groups(sync)) {
      all.push_back({sync, 0, gathers ? data : 0});
      continue;
    }
    for (int shard = 2; shard < data; ++shard)
      if (data % shard == 0) all.push_back({sync, shard, gathers ? shard : 0});
  }
  std::ranges::stable_sort(all, {}, &Layout::gathers);
  return all;
}

// More lanes than cores wait for one another; more lanes than micro-batches are idle.
int most_lanes(const train::Settings& settings, const FitPlace& place, std::int64_t micro) {
  const std::int64_t micro_batches = settings.batches.batch / micro;
  const std::int64_t of_a_rank = (micro_batches + place.ranks - 1) / place.ranks;
  if (settings.strategy.pipeline > 1) return 1;  // its micro-batches overlap without lanes
  if (settings.strategy.expert * settings.strategy.context * settings.strategy.tensor > 1)
    return 1;                                   // several ranks compute a layer together
  if (settings.device_kind != "cpu") return 1;  // a device computes one after the other
  const int cores = observe::usable_cores().usable / (place.ranks_here * settings.kernel_threads);
  return static_cast<int>(std::clamp<std::int64_t>(cores, 1, std::max<std::int64_t>(of_a_rank, 1)));
}

// The inputs of a search, which all its candidates share.
struct Search {
  const config::Config& config;
  const train::Settings& settings;  // with figures that are measured already
  const input::Corpus& corpus;
  const FitPlace& place;
};

FitCandidate candidate(const Search& search, FitCandidate one) {
  const train::Settings& settings = search.settings;
  train::Settings varied = settings;
  varied.strategy.sync = one.sync;
  varied.strategy.shard = one.shard;
  varied.strategy.lanes = one.lanes;
  varied.strategy.recompute = one.recompute;
  varied.batches.micro = one.micro;
  varied.memory_limit = search.place.limit;  // "auto" uses it
  try {
    const plan::TrainingPlan plan =
        train::plan_training(varied, search.corpus, "fit", search.place.ranks,
                             search.place.ranks_here, search.place.speeds);
    one.predicted_bytes = plan.rank_bytes();
    one.predicted_seconds = plan.step_seconds();
    one.recompute = plan.job.recompute;  // the policy that "auto" chose
  } catch (const ConfigError& error) {
    one.impossible = error.message();
  }
  return one;
}

// Adds one layout and number of lanes with more and more recomputation. Skips policies that save no
// memory; stops after one that surely fits, since further ones are only slower.
void add_policies(const Search& search, const FitCandidate& layout,
                  std::vector<FitCandidate>& all) {
  constexpr double kSurely = 0.9;  // of the limit; the accuracy of predictions (docs/design/007)
  constexpr double kSaves = 0.99;
  std::vector<std::string> policies = {"none", "selective", "every-2", "full"};
  if (insisted(search.config, "memory.recompute")) policies = {search.settings.strategy.recompute};
  std::optional<double> least;  // bytes so far
  for (const std::string& policy : policies) {
    FitCandidate one = layout;
    one.recompute = policy;
    one = candidate(search, std::move(one));
    const auto bytes = static_cast<double>(one.predicted_bytes);
    if (least && bytes > kSaves * *least) continue;
    all.push_back(one);
    if (!one.impossible.empty()) return;
    least = bytes;
    if (bytes <= kSurely * static_cast<double>(search.place.limit)) return;
  }
}

MemoryLeft share_of_host(int ranks, std::int64_t shared) {
  const MemoryLeft host = memory_of_host();
  if (host.reason.empty()) return {};
  return {std::max<std::int64_t>(host.bytes - shared, 0) / ranks + std::min(shared, host.bytes),
          host.reason + ", for " + counted(ranks, "rank")};
}

MemoryLeft share_of_device(const train::Settings& settings) {
  const train::PlannedDevice device = train::planned_device(settings);
  const int ranks = settings.ranks_per_device;
  const std::string name(device.accelerator != nullptr ? device.accelerator->about : "the device");
  return {device.memory / ranks, name + " has " + bytes_text(static_cast<double>(device.memory)) +
                                     (ranks > 1 ? ", for " + counted(ranks, "rank") : "")};
}

}  // namespace

bool can_fit(const train::Settings& settings) {
  return !parallel::is_local(settings.strategy.sync) &&
         !parallel::is_served(settings.strategy.sync);
}

std::vector<FitCandidate> fit_candidates(const config::Config& config,
                                         const train::Settings& settings,
                                         const input::Corpus& corpus, const FitPlace& place,
                                         std::int64_t micro) {
  if (!can_fit(settings))
    refuse("fit",
           "--fit chooses among " + joined(parallel::level_names()) + "; parallel.sync = \"" +
               settings.strategy.sync + "\" is none of them",
           "Leave out --fit or parallel.sync.");
  train::Settings measured = settings;
  // The figures of a model without a formula are measured by running it, so measure only once.
  const train::ModelFigures figures = settings.model.figures(
      micro, train::examples_of(settings.model.data->validation(corpus.validation, {})));
  measured.model.figures = [figures](std::int64_t, const train::Examples&) { return figures; };
  const Search search{config, measured, corpus, place};
  std::vector<FitCandidate> candidates;
  for (const Layout& layout : layouts(config, settings, place.ranks)) {
    // If gradients are sharded, each rank computes one micro-batch at a time.
    const bool in_turn = place.ranks > 1 && parallel::goes_in_rounds(layout.sync);
    int most = in_turn ? 1 : most_lanes(settings, place, micro), least = 1;
    if (insisted(config, "train.lanes")) most = least = settings.strategy.lanes;
    for (int lanes = most; lanes >= least; --lanes)
      add_policies(search,
                   {.sync = layout.sync, .shard = layout.shard, .lanes = lanes, .micro = micro},
                   candidates);
  }
  return candidates;
}

std::vector<std::int64_t> smaller_micro_batches(const train::Settings& settings) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t micro = settings.batches.micro - 1; micro >= 1; --micro)
    if (settings.batches.batch % micro == 0) divisors.push_back(micro);
  return divisors;
}

MemoryLeft memory_of_host() {
  const std::int64_t machine = observe::memory_available(), group = observe::memory_left();
  if (machine == 0) return {};
  const std::int64_t left = std::min(machine, group);
  return {left, bytes_text(static_cast<double>(left)) + " are left " +
                    (group < machine ? "by this process's control group" : "on this machine")};
}

MemoryLeft memory_for_a_rank(const train::Settings& settings, int ranks, std::int64_t shared) {
  const MemoryLeft own =
      settings.device_kind == "cpu" ? share_of_host(ranks, shared) : share_of_device(settings);
  if (settings.memory_limit > 0 && (own.bytes == 0 || settings.memory_limit <= own.bytes))
    return {settings.memory_limit, "memory.limit"};
  return own;
}

}  // namespace trireme::inline v0::cli
