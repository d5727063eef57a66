#include "trireme/plan/partition/partition.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/plan/partition/graph_partition.h"

namespace trireme::inline v0::plan {
namespace {

std::string text(std::int64_t value) { return std::to_string(value); }

// nullopt if memory does not suffice.
std::optional<Partition> cut(std::span<const BlockCost> blocks, const PartitionOptions& options) {
  Graph chain;
  for (const BlockCost& block : blocks) {
    const int index = static_cast<int>(chain.nodes.size());
    chain.nodes.push_back({block.name, block.seconds, block.weight_bytes, block.activation_bytes});
    if (chain.nodes.size() < blocks.size())
      chain.values.push_back({index, {index + 1}, block.output_bytes});
  }
  const std::optional<GraphPartition> found = cut_chain(chain, options);
  if (!found) return std::nullopt;
  Partition partition;
  for (const GraphStage& stage : found->stages)
    partition.stages.push_back({stage.nodes.front(), stage.nodes.back() + 1, stage.seconds,
                                stage.memory_bytes, stage.sent_bytes});
  return partition;
}

void check(std::span<const BlockCost> blocks, const PartitionOptions& options) {
  if (options.stages < 1 || options.stages > static_cast<int>(blocks.size())) {
    refuse("partition",
           text(options.stages) + " stages of " + text(static_cast<std::int64_t>(blocks.size())) +
               " blocks: each stage has at least one",
           "Use 1 to " + text(static_cast<std::int64_t>(blocks.size())) +
               " stages, or a model of more blocks.");
  }
  for (const BlockCost& block : blocks) {
    if (block.seconds >= 0 && std::isfinite(block.seconds) && block.weight_bytes >= 0 &&
        block.activation_bytes >= 0 && block.output_bytes >= 0)
      continue;
    refuse("partition", "block " + block.name + " has a cost that is negative or not finite",
           "Measure the block again.");
  }
}

// Whether cut() finds a partition, in O(stages x blocks).
bool can_fit(std::span<const BlockCost> blocks, const PartitionOptions& options) {
  std::vector<bool> ends(blocks.size() + 1, false);  // where the stages so far can end
  ends[0] = true;
  for (int stage = 0; stage < options.stages; ++stage) {
    const std::int64_t live = options.live ? options.live(options.stages, stage) : 1;
    const auto bytes = [&](std::size_t block) {
      return blocks[block].weight_bytes + live * blocks[block].activation_bytes;
    };
    std::vector<bool> next(ends.size(), false);
    std::size_t end = 0, marked = 0;  // this stage can hold blocks begin ... end-1
    std::int64_t held = 0;
    for (std::size_t begin = 0; begin < blocks.size(); ++begin) {
      end = std::max(end, begin);
      while (end < blocks.size() && held + bytes(end) <= options.memory_limit) held += bytes(end++);
      if (ends[begin])
        for (marked = std::max(marked, begin); marked < end;) next[++marked] = true;
      if (end > begin) held -= bytes(begin);
    }
    ends = std::move(next);
  }
  return ends.back();
}

// The smallest larger number of stages that fits; 0: none does.
int stages_that_fit(std::span<const BlockCost> blocks, PartitionOptions options) {
  while (++options.stages <= static_cast<int>(blocks.size()))
    if (can_fit(blocks, options)) return options.stages;
  return 0;
}

[[noreturn]] void refuse_blocks(std::span<const BlockCost> blocks,
                                const PartitionOptions& options) {
  PartitionOptions without = options;
  without.memory_limit = 0;
  without.slack = 0;
  const std::string table = text_of(*cut(blocks, without), blocks);
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
  refuse("partition",
         counted(options.stages, "stage") +
             (options.stages == 1 ? " does not fit into " : " do not fit into ") +
             bytes_text(options.memory_limit) + " each",
         advice);
}

std::string imbalance_text(double slowest, double mean) {
  return formatted("imbalance %.1f %%: ", mean > 0 ? 100 * (slowest / mean - 1) : 0) +
         formatted("the slowest stage takes %.2f ms, ", slowest * 1e3) +
         formatted("the mean is %.2f ms\n", mean * 1e3);
}

void check_stages(std::int64_t blocks, int stages) {
  if (stages <= blocks) return;
  refuse("pipeline",
         text(stages) + " pipeline stages are more than the model's " + text(blocks) + " blocks",
         "Lower parallel.pipeline, or use a schedule with fewer stages a rank.");
}

Partition partition_chain(std::span<const BlockCost> blocks, const PartitionOptions& options) {
  check(blocks, options);
  std::optional<Partition> partition = cut(blocks, options);
  if (!partition) refuse_blocks(blocks, options);
  return *std::move(partition);
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
    if (stage.end - stage.first > 1)
      range += " to " + blocks[static_cast<std::size_t>(stage.end - 1)].name;
    add(std::to_string(i).c_str(), range, formatted("%.2f ms", stage.seconds * 1e3),
        bytes_text(stage.memory_bytes),
        i + 1 < partition.stages.size() ? bytes_text(stage.sent_bytes) : "");
  }
  return table + imbalance_text(partition.slowest(), partition.mean());
}

}  // namespace trireme::inline v0::plan
