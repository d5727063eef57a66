#include "trireme/plan/partition/partition.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <optional>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::inline v0::plan {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

std::string text(std::int64_t value) { return std::to_string(value); }

// Secondary cost of a partition: bytes sent, then the sum of squared times, which makes the
// remaining stages even.
struct Cost {
  std::int64_t bytes = 0;
  double squares = 0;
  bool operator<(const Cost& other) const {
    return std::tie(bytes, squares) < std::tie(other.bytes, other.squares);
  }
};

class Chain {
 public:
  Chain(std::span<const BlockCost> blocks, const PartitionOptions& options)
      : blocks_(blocks), options_(options), count_(static_cast<int>(blocks.size())) {
    seconds_.push_back(0);
    weights_.push_back(0);
    activations_.push_back(0);
    for (const BlockCost& block : blocks) {
      seconds_.push_back(seconds_.back() + block.seconds);
      weights_.push_back(weights_.back() + block.weight_bytes);
      activations_.push_back(activations_.back() + block.activation_bytes);
    }
  }

  StageCost cost(int stage, int first, int end) const {
    const auto sum = [&](const auto& prefix) { return prefix[at(end)] - prefix[at(first)]; };
    const int live = options_.live ? options_.live(options_.stages, stage) : 1;
    return {first, end, sum(seconds_), sum(weights_) + live * sum(activations_),
            end < count_ ? blocks_[at(end - 1)].output_bytes : 0};
  }

  // The least possible time of the slowest stage; infinite if memory does not suffice.
  double slowest() const {
    // best[end]: slowest of the stages so far, over the first `end` blocks.
    std::vector<double> best(at(count_ + 1), kImpossible);
    best[0] = 0;
    for (int stage = 0; stage < options_.stages; ++stage) {
      std::vector<double> next(at(count_ + 1), kImpossible);
      for (int end = stage + 1; end <= count_; ++end) {
        for (int first = stage; first < end; ++first) {
          const StageCost one = cost(stage, first, end);
          if (fits(one))
            next[at(end)] = std::min(next[at(end)], std::max(best[at(first)], one.seconds));
        }
      }
      best = std::move(next);
    }
    return best[at(count_)];
  }

  // The partition with the least Cost, among those whose stages take at most `bound`.
  Partition cheapest(double bound) const {
    using Row = std::vector<std::optional<Cost>>;
    Row best(at(count_ + 1));
    best[0] = Cost{};
    std::vector<std::vector<int>> from;  // [stage][end]: first block of the stage
    for (int stage = 0; stage < options_.stages; ++stage) {
      Row next(at(count_ + 1));
      from.emplace_back(at(count_ + 1), 0);
      for (int end = stage + 1; end <= count_; ++end) {
        for (int first = stage; first < end; ++first) {
          const StageCost one = cost(stage, first, end);
          if (!best[at(first)] || !fits(one) || one.seconds > bound) continue;
          const Cost sum{best[at(first)]->bytes + one.sent_bytes,
                         best[at(first)]->squares + one.seconds * one.seconds};
          if (next[at(end)] && !(sum < *next[at(end)])) continue;
          next[at(end)] = sum;
          from.back()[at(end)] = first;
        }
      }
      best = std::move(next);
    }
    Partition partition;
    for (int stage = options_.stages - 1, end = count_; stage >= 0; --stage) {
      const int first = from[at(stage)][at(end)];
      partition.stages.push_back(cost(stage, first, end));
      end = first;
    }
    std::reverse(partition.stages.begin(), partition.stages.end());
    return partition;
  }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  bool fits(const StageCost& one) const {
    return options_.memory_limit == 0 || one.memory_bytes <= options_.memory_limit;
  }

  std::span<const BlockCost> blocks_;
  const PartitionOptions& options_;
  int count_;
  std::vector<double> seconds_;  // prefix sums
  std::vector<std::int64_t> weights_, activations_;
};

void check(std::span<const BlockCost> blocks, const PartitionOptions& options) {
  if (options.stages < 1 || options.stages > static_cast<int>(blocks.size())) {
    throw ConfigError(text(options.stages) + " stages of " +
                          text(static_cast<std::int64_t>(blocks.size())) +
                          " blocks: each stage has at least one",
                      {.operation = "partition",
                       .advice = "Use 1 to " + text(static_cast<std::int64_t>(blocks.size())) +
                                 " stages, or a model of more blocks."});
  }
  for (const BlockCost& block : blocks) {
    if (block.seconds >= 0 && std::isfinite(block.seconds) && block.weight_bytes >= 0 &&
        block.activation_bytes >= 0 && block.output_bytes >= 0) {
      continue;
    }
    throw ConfigError("block " + block.name + " has a negative cost", {.operation = "partition"});
  }
}

// The smallest larger number of stages that fits; 0: none does.
int stages_that_fit(std::span<const BlockCost> blocks, PartitionOptions options) {
  while (++options.stages <= static_cast<int>(blocks.size())) {
    if (Chain(blocks, options).slowest() < kImpossible) return options.stages;
  }
  return 0;
}

[[noreturn]] void refuse(std::span<const BlockCost> blocks, const PartitionOptions& options) {
  PartitionOptions without = options;
  without.memory_limit = 0;
  const Chain chain(blocks, without);
  const std::string table = text_of(chain.cheapest(chain.slowest()), blocks);
  const int enough = stages_that_fit(blocks, options);
  std::string advice = "Without the limit it would be\n" + table;
  if (enough > 0) {
    advice += text(enough) + " stages fit.";
  } else {
    const auto largest = std::max_element(blocks.begin(), blocks.end(), [](auto& a, auto& b) {
      return a.weight_bytes + a.activation_bytes < b.weight_bytes + b.activation_bytes;
    });
    advice += "No number of stages fits; block " + largest->name + " alone takes " +
              bytes_text(largest->weight_bytes + largest->activation_bytes) +
              ": split its layers over ranks (parallel.tensor), or use smaller micro-batches.";
  }
  refuse_memory(options, advice);
}

}  // namespace

void refuse_memory(const PartitionOptions& options, const std::string& advice) {
  throw ConfigError(counted(options.stages, "stage") +
                        (options.stages == 1 ? " does not fit into " : " do not fit into ") +
                        bytes_text(options.memory_limit) + " each",
                    {.operation = "partition", .advice = advice});
}

std::string imbalance_text(double slowest, double mean) {
  char line[128];
  std::snprintf(line, sizeof line,
                "imbalance %.1f %%: the slowest stage takes %.2f ms, the mean is %.2f ms\n",
                mean > 0 ? 100 * (slowest / mean - 1) : 0, slowest * 1e3, mean * 1e3);
  return line;
}

void check_stages(std::int64_t blocks, int stages) {
  if (stages <= blocks) return;
  throw ConfigError(
      text(stages) + " pipeline stages are more than the model's " + text(blocks) + " blocks",
      {.operation = "pipeline",
       .advice = "Lower parallel.pipeline, or use a schedule with fewer stages a rank."});
}

Partition partition_chain(std::span<const BlockCost> blocks, const PartitionOptions& options) {
  check(blocks, options);
  const Chain chain(blocks, options);
  const double slowest = chain.slowest();
  if (slowest == kImpossible) refuse(blocks, options);
  return chain.cheapest(slowest * (1 + options.slack));
}

std::string text_of(const Partition& partition, std::span<const BlockCost> blocks) {
  char line[256];
  std::string table;
  const auto add = [&](const char* stage, const std::string& range, const std::string& time,
                       const std::string& memory, const std::string& sent) {
    std::snprintf(line, sizeof line, "%-7s%-30.30s%12s%12s%12s\n", stage, range.c_str(),
                  time.c_str(), memory.c_str(), sent.c_str());
    table += line;
  };
  add("stage", "blocks", "time", "memory", "sends");
  for (std::size_t i = 0; i < partition.stages.size(); ++i) {
    const StageCost& stage = partition.stages[i];
    std::string range = blocks[static_cast<std::size_t>(stage.first)].name;
    if (stage.end - stage.first > 1) {
      range += " to " + blocks[static_cast<std::size_t>(stage.end - 1)].name;
    }
    char time[32];
    std::snprintf(time, sizeof time, "%.2f ms", stage.seconds * 1e3);
    add(std::to_string(i).c_str(), range, time, bytes_text(stage.memory_bytes),
        i + 1 < partition.stages.size() ? bytes_text(stage.sent_bytes) : "");
  }
  return table + imbalance_text(partition.slowest(), partition.mean());
}

}  // namespace trireme::inline v0::plan
