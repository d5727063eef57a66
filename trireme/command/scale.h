// trireme bench scale: how a training job's step time changes with its ranks. Strong: the same
// global batch, shared by more; weak: a batch that grows with them.
//
// Some rank counts run here; further ones are put together from this machine's compute time of one
// rank and from the communication of the production code on a simulated network (net/sim), whose
// ranks compute in no time. What that assumes is printed with the table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace command {

struct ScalePoint {
  bool weak = false, simulated = false;
  int ranks = 1;
  double step_seconds = 0, communication_seconds = 0;  // medians
  double samples_per_second = 0;
  /// Of the one rank's samples a second.
  double speedup = 1;
};

/// The time of one rank's share of a step: of `compute` seconds for `micro_batches`, the rank with
/// most has ceil(micro_batches / ranks). Strong scaling; weak scaling keeps `compute`.
double share_of_compute(double compute, std::int64_t micro_batches, int ranks);

/// Samples a second over ranks as SVG: measured, simulated, and ideal.
std::string draw_scale(const std::string& name, const std::vector<ScalePoint>& points,
                       const std::string& assumption);

}  // namespace command
}  // namespace v0
}  // namespace trireme
