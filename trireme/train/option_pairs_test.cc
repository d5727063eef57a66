// Ranks accept what a plan accepts: plans every pair of options of a configuration, and trains a
// step on the simulated network with every pair that the plan accepts.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/input/batches.h"
#include "trireme/input/shared_corpus.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/testing/run_ranks.h"
#include "trireme/train/config/schema.h"
#include "trireme/train/plan/job_plan.h"

namespace trireme {
namespace {

// Options of the same axis are never paired, since the second would override the first.
struct Option {
  std::string axis;
  std::vector<std::string> set;
};

std::vector<Option> options_of(const std::vector<std::pair<std::string, const char*>>& axes) {
  std::vector<Option> all;
  for (const auto& [key, values] : axes) {
    std::string rest = values;
    for (std::size_t bar = 0; bar != std::string::npos;) {
      bar = rest.find('|');
      all.push_back({key, {key + "=" + rest.substr(0, bar)}});
      rest = bar == std::string::npos ? "" : rest.substr(bar + 1);
    }
  }
  return all;
}

const std::string& folder() {
  static const std::string path = [] {
    const std::string own = ::testing::TempDir() + "option_pairs_" + std::to_string(::getpid());
    std::filesystem::create_directory(own);
    return own;
  }();
  return path;
}

// The options that all models have; those of layouts come first.
std::vector<Option> common_options() {
  std::vector<Option> all =
      options_of({{"parallel.sync", "zero1|zero2|zero3|hybrid|local_sgd|diloco|easgd|gossip"},
                  {"parallel.pipeline", "2|3|4"},
                  {"parallel.schedule", "gpipe|interleaved-1f1b|zb-v|dualpipe-v"},
                  {"parallel.chunks", "1|2"},
                  {"parallel.tensor", "2|4"},
                  {"parallel.sequence", "true"},
                  {"parallel.context", "2|4"},
                  {"parallel.expert", "2|4"},
                  {"parallel.shard", "1|2|3"},
                  {"parallel.data", "1|2|4"},
                  {"parallel.overlap", "false"},
                  {"parallel.graph", "ring|exponential|random"},
                  {"parallel.local_steps", "1"},
                  {"comm.compression", "bf16|topk:0.5|powersgd:2|onebit"},
                  {"train.precision", "bf16|fp16|fp64"},
                  {"train.products", "bf16"},
                  {"train.loss_scale", "256"},
                  {"train.lanes", "2"},
                  {"memory.recompute", "selective|full|every-2|full*1,none*3"},
                  {"optimizer.groups", "match=*weight weight_decay=0|match=nothing weight_decay=0"},
                  {"train.ema", "0.9"},
                  {"train.skip_outliers", "3"},
                  {"train.noise_scale", "true"},
                  {"train.clip", "0"},
                  {"train.skip_not_finite", "0"},
                  {"batch.micro", "1|4|8"}});
  for (const std::string& name : optim::optimizer_names())
    if (name != AdamW::kName) all.push_back({"optimizer.name", {"optimizer.name=" + name}});
  for (const char* key : {"memory.offload", "memory.offload_activations"})
    all.push_back({key, {std::string(key) + "=" + folder()}});
  return all;
}

struct Family {
  std::string name;
  std::vector<std::string> base;
  std::vector<Option> own;
  input::Corpus corpus;
};

input::Corpus text() {
  input::Corpus corpus{.source = "a text", .num_files = 1};
  for (int i = 0; i < 400; ++i) corpus.train += "line " + std::to_string(i * 7 % 100) + "\n";
  corpus.validation = corpus.train.substr(0, 600);
  return corpus;
}

input::Corpus images() {
  input::Corpus corpus{.source = "images"};
  corpus.train = std::string(3073 * 12, '\1');
  corpus.validation = std::string(3073 * 8, '\2');
  return corpus;
}

const std::vector<std::string> kTransformer = {"model.layers=2", "model.heads=2",  "model.width=8",
                                               "model.block=8",  "batch.global=8", "batch.micro=2"};

Family gpt() {
  return {"gpt", kTransformer,
          options_of({{"model.experts", "1|4|6"},
                      {"model.activation", "swiglu"},
                      {"model.bias", "true"},
                      {"model.vocab", "258"},
                      {"model.block", "6"},
                      {"model.heads", "4"},
                      {"model.dropout", "0.1"}}),
          text()};
}
Family bert() {
  return {"bert", kTransformer, options_of({{"model.block", "6"}, {"model.dropout", "0.1"}}),
          text()};
}
Family resnet() {
  return {"resnet18",
          {"model.width=2", "batch.global=8", "batch.micro=2"},
          options_of({{"data.augment", "false"}}),
          images()};
}

struct Run {
  const Family& family;
  int ranks;
  std::vector<std::string> set;
  std::string name() const {
    std::string all = family.name + " on " + std::to_string(ranks) + " ranks:";
    for (const std::string& one : set) all += " " + one;
    return all;
  }
};

config::Config config_of(const Run& run) {
  std::vector<std::string> assignments = {"model.name=" + run.family.name, "train.steps=3",
                                          "train.warmup=0"};
  for (const auto* list : {&run.family.base, &run.set})
    assignments.insert(assignments.end(), list->begin(), list->end());
  return train::read_config(
      "", [](const char*) { return nullptr; }, assignments);
}

// Runs a step and a validation.
void train_one(const train::Settings& settings,
               const std::shared_ptr<const input::SharedCorpus>& bytes,
               testing::RankContext& rank) {
  kernel::Assignment assignment;
  const parallel::StrategyContext env{
      .world = rank.world.get(),
      .assign = [&](const kernel::Assignment& shares) { assignment = shares; },
      .local_size = rank.world->size()};
  Strategy strategy(env, settings.model.blocks, settings.strategy,
                    optim::make_optimizer(settings.optimizer));
  BatchesOptions reading = settings.batches;
  reading.prefetch = 0;
  Batches batches(settings.model.data->train(bytes->train(), bytes), reading, rank.rank,
                  assignment.size(), rank.world->waiter(), [&] { return assignment; });
  strategy.step(batches.next(), settings.model.loss);
  const auto held_out =
      input::fixed_share(*settings.model.data->validation(bytes->validation(), bytes),
                         settings.batches.batch, settings.batches.micro, 1, assignment, rank.rank);
  strategy.use_average(true);
  strategy.evaluate(held_out, settings.model.loss);
}

// Returns "" if the plan accepts it, else the refusal, which must be one line.
std::string planned(const Run& run, std::optional<train::Settings>& settings) {
  try {
    settings.emplace(config_of(run));
    const plan::TrainingPlan plan =
        train::plan_training(*settings, run.family.corpus, "pairs", run.ranks, run.ranks);
    settings->strategy.recompute = plan.job.recompute;
    return {};
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.find('\n'), std::string::npos) << run.name() << ": " << what;
    EXPECT_FALSE(error.advice().empty()) << run.name() << ": " << what;
    return what;
  }
}

struct Count {
  int accepted = 0, refused = 0;
};

void expect_plan_and_ranks_agree(const Run& run, Count& count) {
  std::optional<train::Settings> settings;
  if (!planned(run, settings).empty()) {
    ++count.refused;
    return;
  }
  ++count.accepted;
  const auto bytes = input::SharedCorpus::make(run.family.corpus);
  std::mutex mutex;
  std::string said;
  testing::run_ranks(run.ranks, [&](testing::RankContext& rank) {
    try {
      train_one(*settings, bytes, rank);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (said.empty()) said = error.what();
    }
  });
  EXPECT_EQ(said, "") << "the plan accepts " << run.name();
}

std::vector<Option> all_options(const Family& family) {
  std::vector<Option> all = common_options();
  all.insert(all.end(), family.own.begin(), family.own.end());
  return all;
}

std::vector<std::string> together(const std::vector<const Option*>& options) {
  std::vector<std::string> set;
  for (const Option* one : options) set.insert(set.end(), one->set.begin(), one->set.end());
  return set;
}

using Pair = std::pair<std::size_t, std::size_t>;  // indices of options, the smaller first

// The pairs that the plan accepts; counts the others.
std::set<Pair> accepted_pairs(const Family& family, int ranks, const std::vector<Option>& all,
                              Count& count) {
  std::set<Pair> accepted;
  std::optional<train::Settings> settings;
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = a + 1; b < all.size(); ++b) {
      if (all[a].axis == all[b].axis) continue;
      if (planned({family, ranks, together({&all[a], &all[b]})}, settings).empty())
        accepted.emplace(a, b);
      else
        ++count.refused;
    }
  }
  return accepted;
}

// Adds to `chosen` what the plan accepts beside it, if that covers another of the `open` pairs.
void extend(const Family& family, int ranks, const std::vector<Option>& all,
            const std::set<Pair>& accepted, const std::set<Pair>& open,
            std::vector<std::size_t>& chosen) {
  constexpr std::size_t kMost = 6;  // more options hide more of one another
  std::optional<train::Settings> settings;
  for (std::size_t next = 0; next < all.size() && chosen.size() < kMost; ++next) {
    bool fits = true, useful = false;
    std::vector<const Option*> options = {&all[next]};
    for (const std::size_t one : chosen) {
      const Pair pair = std::minmax(one, next);
      fits = fits && accepted.contains(pair);
      useful = useful || open.contains(pair);
      options.push_back(&all[one]);
    }
    if (fits && useful && planned({family, ranks, together(options)}, settings).empty())
      chosen.push_back(next);
  }
}

// Plans every pair alone. Ranks train each accepted pair alone if TRIREME_EACH_PAIR is set, else up
// to six options at once, until every accepted pair was among them.
Count every_pair(const Family& family, int ranks) {
  const std::vector<Option> all = all_options(family);
  Count count;
  const std::set<Pair> accepted = accepted_pairs(family, ranks, all, count);
  std::set<Pair> open = accepted;
  while (!open.empty()) {
    std::vector<std::size_t> chosen = {open.begin()->first, open.begin()->second};
    if (std::getenv("TRIREME_EACH_PAIR") == nullptr)
      extend(family, ranks, all, accepted, open, chosen);
    std::vector<const Option*> options;
    for (const std::size_t one : chosen) {
      options.push_back(&all[one]);
      for (const std::size_t other : chosen)
        if (one < other) count.accepted += static_cast<int>(open.erase({one, other}));
    }
    Count runs;
    expect_plan_and_ranks_agree({family, ranks, together(options)}, runs);
    EXPECT_EQ(runs.accepted, 1);
  }
  return count;
}

TEST(OptionPairs, WhatThePlanAcceptsRanksOfAGptAccept) {
  const Count count = every_pair(gpt(), 4);
  EXPECT_GT(count.accepted, 500);
  EXPECT_GT(count.refused, 500);
}

TEST(OptionPairs, EveryOptionOfEveryModelOnEveryNumberOfRanks) {
  Count count;
  for (const Family& family : {gpt(), bert(), resnet()})
    for (const int ranks : {1, 2, 3})
      for (const Option& one : all_options(family))
        expect_plan_and_ranks_agree({family, ranks, one.set}, count);
  EXPECT_GT(count.accepted, 200);
  EXPECT_GT(count.refused, 100);
}

TEST(OptionPairs, SeededHandfulsOfOptions) {
  std::mt19937 random(20260714);
  Count count;
  for (const Family& family : {gpt(), bert(), resnet()}) {
    const std::vector<Option> all = all_options(family);
    for (int round = 0; round < 120; ++round) {
      std::vector<const Option*> chosen;
      for (int i = 0; i < 3 + round % 3; ++i) chosen.push_back(&all[random() % all.size()]);
      const int ranks = round % 2 == 0 ? 4 : 8;
      expect_plan_and_ranks_agree({family, ranks, together(chosen)}, count);
    }
  }
  EXPECT_GT(count.accepted, 10);
}

}  // namespace
}  // namespace trireme
