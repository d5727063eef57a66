#include "trireme/plan/named_strategies.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/nearest.h"
#include "trireme/base/shortened.h"

namespace trireme::inline v0::plan {
namespace {

using enum Between;
using Rule = NamedKey::Rule;

NamedKey sync(const char* level) { return {"parallel.sync", std::string(level)}; }
NamedKey degree(const char* key) { return {key, std::int64_t{2}, Rule::AtLeast}; }

const Movement kGradientSum{AllRanks, Moved::Gradients, "sum of the gradients (all-reduce)"};

void add_replicas(std::vector<NamedStrategy>& all) {
  all.push_back({.name = "OneDevice",
                 .others = {"SingleDevice"},
                 .about = "One rank trains the whole model",
                 .keys = {sync("plain")},
                 .most_ranks = 1});
  all.push_back({.name = "Mirrored",
                 .others = {"DataParallel"},
                 .about = "Every device of one host has a copy, and the copies stay equal",
                 .keys = {sync("plain")},
                 .moves = {kGradientSum},
                 .one_host = true});
  all.push_back({.name = "MultiWorkerMirrored",
                 .others = {"DDP", "DistributedDataParallel", "Horovod", "CollectiveAllReduce"},
                 .about = "Every device of several hosts has a copy, and the copies stay equal",
                 .keys = {sync("plain")},
                 .moves = {kGradientSum},
                 .hosts = 2});
  all.push_back({.name = "TPU",
                 .others = {"XLA"},
                 .about = "As MultiWorkerMirrored, on the devices of PyTorch/XLA",
                 .keys = {sync("plain"), {"train.device", std::string("xla")}},
                 .moves = {kGradientSum},
                 .hosts = 2,
                 .missing = "LibTorch's wheel has no TPU device; PyTorch/XLA, which has one, is a "
                            "Python package",
                 .advice = "Use MultiWorkerMirrored on CPUs or GPUs; over XLA devices it would be "
                           "parallel.sync = \"plain\" with train.device = \"xla\"."});
}

void add_servers(std::vector<NamedStrategy>& all) {
  const Holding worker{Share::Whole, Share::Whole, Share::None};
  const std::vector<Movement> moves = {
      {RanksToServers, Moved::Gradients, "gradients, to the servers that own them (push)"},
      {ServersToRanks, Moved::Weights, "weights, from their servers (pull)"}};
  all.push_back({.name = "ParameterServer",
                 .others = {"PS", "DistributedParameterServer"},
                 .about = "Servers hold the weights and update them; workers do not wait for one "
                          "another",
                 .keys = {sync("server"), {"server.staleness", std::int64_t{-1}, Rule::Default}},
                 .rank = worker,
                 .moves = moves,
                 .servers = 2});
  all.push_back({.name = "CentralStorage",
                 .others = {"CentralServer"},
                 .about = "One server holds all weights and updates them",
                 .keys = {sync("server"), {"server.count", std::int64_t{1}}},
                 .rank = worker,
                 .moves = moves,
                 .servers = 1,
                 .server = {Share::Whole, Share::None, Share::Whole}});
}

void add_shards(std::vector<NamedStrategy>& all) {
  const Movement scatter{AllRanks, Moved::Gradients,
                         "sums of the gradients, each to its owner (reduce-scatter)"};
  const Movement gather{AllRanks, Moved::Weights, "updated weights, to all ranks (all-gather)"};
  const Holding all_sliced{Share::Slice, Share::Slice, Share::Slice};
  all.push_back({.name = "ZeRO1",
                 .others = {"ZeroRedundancyOptimizer"},
                 .about = "Every rank owns a slice of the optimizer state",
                 .keys = {sync("zero1")},
                 .rank = {Share::Whole, Share::Whole, Share::Slice},
                 .moves = {scatter, gather}});
  all.push_back({.name = "ZeRO2",
                 .others = {"ShardGradOp"},
                 .about = "Every rank owns a slice of gradients and optimizer state",
                 .keys = {sync("zero2")},
                 .rank = {Share::Whole, Share::Slice, Share::Slice},
                 .moves = {scatter, gather}});
  all.push_back({.name = "ZeRO3",
                 .others = {"FSDP", "FullyShardedDataParallel", "FullShard"},
                 .about = "Every rank owns a slice of weights, gradients and optimizer state",
                 .keys = {sync("zero3")},
                 .rank = all_sliced,
                 .moves = {{AllRanks, Moved::Weights,
                            "weights of a block, before its forward and backward (all-gather)"},
                           scatter}});
  all.push_back(
      {.name = "Hybrid",
       .others = {"HSDP", "HybridShard"},
       .about = "The ranks of a host share one copy in slices, and the hosts' copies stay equal",
       .keys = {sync("hybrid")},
       .rank = all_sliced,
       .moves = {{RanksOfAHost, Moved::Weights,
                  "weights of a block, before its forward and backward (all-gather)"},
                 {RanksOfAHost, Moved::Gradients,
                  "sums of the gradients, each to its owner (reduce-scatter)"},
                 {SameRanksOfHosts, Moved::Gradients, "sums of the slices (all-reduce)"}},
       .hosts = 2,
       .cut_within_host = true});
}

void add_model_cuts(std::vector<NamedStrategy>& all) {
  const Holding layers{Share::Layers, Share::Layers, Share::Layers};
  const auto pipeline = [&](const char* name, std::vector<std::string> others, const char* about,
                            std::vector<NamedKey> keys) {
    keys.insert(keys.begin(), degree("parallel.pipeline"));
    all.push_back(
        {.name = name,
         .others = std::move(others),
         .about = about,
         .keys = std::move(keys),
         .rank = layers,
         .moves = {{ToTheNextRank, Moved::Activations, "activations of a micro-batch, forward"},
                   {ToThePreviousRank, Moved::Gradients,
                    "gradients of these activations, backward"}},
         .same_batch = true});
  };
  pipeline("Pipeline", {"PipelineParallel"},
           "Every rank holds some of the blocks, and micro-batches go through them", {});
  pipeline("GPipe", {}, "A pipeline: all micro-batches forward, then all backward",
           {{"parallel.schedule", std::string("gpipe")}});
  pipeline("1F1B", {"PipeDreamFlush"}, "A pipeline: forward and backward passes take turns",
           {{"parallel.schedule", std::string("1f1b")}});
  all.push_back({.name = "Tensor",
                 .others = {"Megatron", "TensorParallel"},
                 .about = "Every rank holds a slice of each layer and computes its part of it",
                 .keys = {degree("parallel.tensor")},
                 .rank = {Share::Slice, Share::Slice, Share::Slice},
                 .moves = {{AllRanks, Moved::Activations,
                            "sums of a layer's partial activations, forward (all-reduce)"},
                           {AllRanks, Moved::Gradients,
                            "sums of the gradients of its inputs, backward (all-reduce)"}},
                 .same_batch = true});
}

void add_local(std::vector<NamedStrategy>& all) {
  all.push_back(
      {.name = "Gossip",
       .others = {"DPSGD"},
       .about = "Every rank trains a copy of its own and averages it with neighbours'",
       .keys = {sync("gossip")},
       .moves = {{Neighbours, Moved::Weights,
                  "weights, averaged with a neighbour's, every parallel.local_steps steps"}}});
  all.push_back({.name = "LocalSGD",
                 .others = {"PostLocalSGD", "FedAvg"},
                 .about = "Every rank trains a copy of its own; now and then all are averaged",
                 .keys = {sync("local_sgd")},
                 .moves = {{AllRanks, Moved::Weights,
                            "mean of weights and optimizer state, every parallel.local_steps steps "
                            "(all-reduce)"}}});
  all.push_back({.name = "DiLoCo",
                 .others = {"BMUF"},
                 .about = "As LocalSGD, and an outer optimizer moves the common weights",
                 .keys = {sync("diloco")},
                 .moves = {{AllRanks, Moved::Weights,
                            "mean of the weights, for the outer optimizer, every "
                            "parallel.local_steps steps (all-reduce)"}}});
}

std::string normalized(std::string_view name) {
  std::string text;
  for (const char c : name)
    if (c != '_' && c != '-')
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr std::string_view kSuffix = "strategy";
  if (text.size() > kSuffix.size() && text.ends_with(kSuffix))
    text.resize(text.size() - kSuffix.size());
  return text;
}

bool contradicts(const NamedKey& key, const config::Value& given) {
  if (key.rule == Rule::AtLeast)
    return std::get<std::int64_t>(given) < std::get<std::int64_t>(key.value);
  return key.rule == Rule::Equal && given != key.value;
}

std::string text_of(const NamedKey& key) {
  std::string text =
      key.key + (key.rule == Rule::AtLeast ? " >= " : " = ") + config::to_toml(key.value);
  return key.rule == Rule::Default ? text + " unless given" : text;
}

[[noreturn]] void refuse_strategy(const std::string& what, const std::string& advice) {
  throw ConfigError(what, {.operation = "config", .label = "parallel.strategy", .advice = advice});
}

}  // namespace

std::span<const NamedStrategy> named_strategies() {
  static const std::vector<NamedStrategy> all = [] {
    std::vector<NamedStrategy> list;
    add_replicas(list);
    add_servers(list);
    add_shards(list);
    add_model_cuts(list);
    add_local(list);
    return list;
  }();
  return all;
}

const NamedStrategy& find_strategy(std::string_view name) {
  const std::string wanted = normalized(name);
  std::vector<std::string> known;
  for (const NamedStrategy& one : named_strategies()) {
    const auto is_wanted = [&](const std::string& own) { return normalized(own) == wanted; };
    if (is_wanted(one.name) || std::ranges::any_of(one.others, is_wanted)) return one;
    known.push_back(one.name);
    known.insert(known.end(), one.others.begin(), one.others.end());
  }
  const std::string close = nearest(name, known);
  refuse_strategy("parallel.strategy = \"" + shortened(std::string(name)) + "\" names no strategy",
                  (close.empty() ? "" : "Did you mean " + close + "? ") + "There are " +
                      joined(named_strategies(), &NamedStrategy::name) + ".");
}

void expand(const NamedStrategy& strategy, const KeyAccess& access) {
  const std::string named = "parallel.strategy = \"" + strategy.name + "\"";
  if (!strategy.missing.empty()) refuse_strategy(named + ": " + strategy.missing, strategy.advice);
  for (const NamedKey& key : strategy.keys) {
    const std::string source = access.source(key.key);
    if (source.empty()) {
      access.set(key.key, key.value);
    } else if (const config::Value given = access.value(key.key); contradicts(key, given)) {
      refuse_strategy(key.key + " = " + config::to_toml(given) + " (" + source + ") contradicts " +
                          named + ", which means " + text_of(key),
                      "Leave one of the two out.");
    }
  }
}

void check_ranks(const NamedStrategy& strategy, int ranks, int hosts) {
  const std::string named = "parallel.strategy = \"" + strategy.name + "\"";
  if (strategy.most_ranks > 0 && ranks > strategy.most_ranks)
    refuse_strategy(named + " is for one rank, and the job has " + std::to_string(ranks),
                    "Start one rank, or use MultiWorkerMirrored.");
  if (strategy.one_host && hosts > 1)
    refuse_strategy(named + " is for one host, and the job has " + std::to_string(hosts),
                    "Use MultiWorkerMirrored, which is the same over several hosts.");
}

std::string describe_keys(const NamedStrategy& strategy) {
  return joined(strategy.keys, [](const NamedKey& key) { return text_of(key); });
}

std::string describe(const Holding& holding) {
  constexpr std::array kWords = {
      std::pair{Share::Whole, "whole"}, std::pair{Share::Slice, "sliced"},
      std::pair{Share::Layers, "some layers"}, std::pair{Share::None, "none"}};
  std::vector<std::string> parts;
  for (const auto& [share, word] : kWords) {
    std::vector<std::string> kinds;
    for (const auto& [own, name] : {std::pair{holding.weights, "weights"},
                                    {holding.gradients, "gradients"},
                                    {holding.optimizer, "optimizer state"}})
      if (own == share) kinds.emplace_back(name);
    if (!kinds.empty()) parts.push_back(joined(kinds) + " " + word);
  }
  return joined(parts, {}, "; ");
}

std::string_view describe(Between between) noexcept {
  constexpr std::array kWords = {"all ranks",        "ranks of a host",      "across hosts",
                                 "to the next rank", "to the previous rank", "neighbours",
                                 "ranks to servers", "servers to ranks"};
  static_assert(kWords.size() == static_cast<std::size_t>(Between::ServersToRanks) + 1);
  return kWords[static_cast<std::size_t>(between)];
}

}  // namespace trireme::inline v0::plan
