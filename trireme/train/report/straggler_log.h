// StragglerLog: which rank came last to the votes of a run's steps, how often, and by how much. Not
// thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/observe/events.h"

namespace trireme::inline v0::train {

class StragglerLog {
 public:
  explicit StragglerLog(int ranks)
      : last_(static_cast<std::size_t>(ranks), 0), behind_(static_cast<std::size_t>(ranks), 0.0) {}

  /// `rank` came last in a step, `behind` seconds after the median of the others. The first step,
  /// in which ranks also set up memory and kernels, does not count.
  void add(long rank, double behind, double step_seconds);
  bool empty() const noexcept { return steps_ <= 0; }
  observe::Event event() const;
  /// "rank 2 came last in 480 of 499 steps, by 20 ms on average: 31 % of the steps' time"
  std::string text() const;

 private:
  std::int64_t steps_ = -1;
  double seconds_ = 0;
  std::vector<std::int64_t> last_;  // steps, by rank
  std::vector<double> behind_;      // in all, by rank
};

}  // namespace trireme::inline v0::train
