// Cuts a chain of blocks into stages: contiguous ranges whose slowest takes as little time as
// possible, and of those the ones that send the fewest bytes. Pure functions.
//
// Exact: dynamic programming over (stages, blocks), O(stages x blocks^2), as in Pinar and Aykanat,
// "Fast optimal load balancing algorithms for 1D partitioning", JPDC 2004; on measured blocks, as
// in Narayanan et al., "PipeDream", SOSP 2019.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace plan {

/// One block of the chain, measured on one micro-batch.
struct BlockCost {
  std::string name;
  double seconds = 0;                 // forward and backward
  std::int64_t weight_bytes = 0;      // with gradients and the optimizer's state
  std::int64_t activation_bytes = 0;  // kept from forward to backward
  std::int64_t output_bytes = 0;      // what the next block reads
};

struct PartitionOptions {
  int stages = 1;
  std::int64_t memory_limit = 0;  // bytes of a stage; 0: none
  /// How many micro-batches' activations stage `stage` of `stages` keeps alive; none: 1.
  std::function<int(int stages, int stage)> live = nullptr;
  /// A stage may take this share longer than the best slowest one where that saves traffic.
  double slack = 0;
};

struct StageCost {
  int first = 0, end = 0;  // blocks first ... end-1
  double seconds = 0;
  std::int64_t memory_bytes = 0;  // weights and live activations
  std::int64_t sent_bytes = 0;    // to the next stage, a micro-batch; the gradients come back
};

struct Partition {
  std::vector<StageCost> stages;
  double slowest() const noexcept;
  double mean() const noexcept;
  /// slowest / mean - 1: the share by which every rank waits for the slowest stage.
  double imbalance() const noexcept;
  std::int64_t sent_bytes() const noexcept;
};

/// ConfigError where a model of so many blocks has not one for each of a pipeline's stages.
void check_stages(std::int64_t blocks, int stages);

/// ConfigError with the arithmetic where there are more stages than blocks; where memory does not
/// suffice, with the table of what was asked for and the smallest number of stages that fits.
Partition partition_chain(std::span<const BlockCost> blocks, const PartitionOptions& options);

/// A table, a line a stage, and the imbalance. Ends with a newline.
std::string text_of(const Partition& partition, std::span<const BlockCost> blocks);

}  // namespace plan
}  // namespace v0
}  // namespace trireme
