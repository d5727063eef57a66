// trireme bench scale: how a training job's step time changes with the number of ranks. Strong
// scaling shares one global batch among more ranks; weak scaling grows the batch with them.
//
// Some rank counts are run on this machine. Larger ones are predicted: this machine's compute time
// of one rank, plus the communication time of the production code on a simulated network (net/sim),
// whose ranks compute in no time. The assumptions are printed with the table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::inline v0::cli {

struct ScalePoint {
  bool weak = false, simulated = false;
  int ranks = 1;
  double step_seconds = 0, communication_seconds = 0;  // medians
  double samples_per_second = 0;
  /// Relative to the samples per second of one rank.
  double speedup = 1;
};

/// Sorts the counts of an option, and leaves each one once.
void sort_once(std::vector<int>& counts);

/// The compute time of the rank with the most micro-batches, ceil(micro_batches / ranks), if one
/// rank needs `compute` seconds for all. For strong scaling; weak scaling keeps `compute`.
double share_of_compute(double compute, std::int64_t micro_batches, int ranks);

/// Plots samples per second over ranks as SVG: measured, simulated and ideal.
std::string draw_scale(const std::string& name, const std::vector<ScalePoint>& points,
                       const std::string& assumption);

}  // namespace trireme::inline v0::cli
