// Cuts a chain of blocks into stages, which are contiguous ranges. Minimizes the time of the
// slowest stage, then the bytes sent. Pure functions.
//
// Exact: dynamic programming over (stages, blocks), O(stages x blocks^2), as in Pinar and Aykanat,
// "Fast optimal load balancing algorithms for 1D partitioning", JPDC 2004; the search is that of
// graphs (graph_partition.h). The blocks are measured, as in Narayanan et al., "PipeDream", SOSP
// 2019.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trireme::inline v0::plan {

/// One block of the chain, measured on one micro-batch.
struct BlockCost {
  std::string name;
  double seconds = 0;                 // forward and backward
  std::int64_t weight_bytes = 0;      // with gradients and optimizer state
  std::int64_t activation_bytes = 0;  // kept from forward to backward
  std::int64_t output_bytes = 0;      // read by the next block
};

struct PartitionOptions {
  int stages = 1;
  std::int64_t memory_limit = 0;  // bytes per stage; 0: none
  /// The number of micro-batches whose activations stage `stage` of `stages` keeps; null: 1.
  std::function<int(int stages, int stage)> live = nullptr;
  /// How much longer than necessary the slowest stage may take to save traffic, as a share.
  double slack = 0;
};

struct StageCost {
  int first = 0, end = 0;  // blocks first ... end-1
  double seconds = 0;
  std::int64_t memory_bytes = 0;  // weights and live activations
  std::int64_t sent_bytes = 0;    // per micro-batch, to the next stage; gradients come back
};

/// The stages of a chain or of a graph, first to last.
template <class Stage>
struct StageList {
  std::vector<Stage> stages;

  double slowest() const noexcept {
    double most = 0;
    for (const Stage& stage : stages) most = std::max(most, stage.seconds);
    return most;
  }
  double mean() const noexcept {
    double sum = 0;
    for (const Stage& stage : stages) sum += stage.seconds;
    return stages.empty() ? 0 : sum / static_cast<double>(stages.size());
  }
  /// slowest / mean - 1: the share of time that ranks wait for the slowest stage.
  double imbalance() const noexcept { return mean() > 0 ? slowest() / mean() - 1 : 0; }
  std::int64_t sent_bytes() const noexcept {
    std::int64_t sum = 0;
    for (const Stage& stage : stages) sum += stage.sent_bytes;
    return sum;
  }
};
struct Partition : StageList<StageCost> {};

/// ConfigError if a model has fewer blocks than the pipeline has stages.
void check_stages(std::int64_t blocks, int stages);

/// ConfigError with the arithmetic if there are more stages than blocks. If memory does not
/// suffice, ConfigError with the table of the request and the smallest number of stages that fits.
Partition partition_chain(std::span<const BlockCost> blocks, const PartitionOptions& options);

/// A table with one line per stage, and the imbalance. Ends with a newline.
std::string text_of(const Partition& partition, std::span<const BlockCost> blocks);

// Shared with graph_partition.cc.
[[noreturn]] void refuse_memory(const PartitionOptions& options, const std::string& advice);
std::string imbalance_text(double slowest, double mean);

}  // namespace trireme::inline v0::plan
