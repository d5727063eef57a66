// Records steps of simulated ranks for pictures. Collectives and messages come from the trace that
// the production code writes (observe/trace.h); each pass of a block takes a given time on the
// virtual clock. So times are exact, and the same in every run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/comm/simulate.h"
#include "trireme/models/block.h"
#include "trireme/observe/trace.h"
#include "trireme/show/step/recorded_step.h"

namespace trireme::inline v0::cli {

/// Records one rank. Used by the rank's thread only.
class RankRecorder {
 public:
  /// Forgets earlier records and starts to record.
  void start();
  void stop();
  /// Sleeps `cost` on the virtual clock and records it as a pass.
  void pass(std::string name, show::StepSpan::Kind kind, Duration cost);
  /// Returns x; backward records a pass `name` when the gradient of x arrives.
  at::Tensor timed(const at::Tensor& x, std::string name, Duration cost);

  std::shared_ptr<observe::Trace> trace = std::make_shared<observe::Trace>();
  std::shared_ptr<Waiter> waiter;
  TimePoint begin = TimePoint::max(), end = TimePoint::max();
  std::vector<models::NamedTensor> parameters;  // of timed_blocks(), with their blocks' names
  /// The lane "computes", and lanes for each group in which the rank communicated. Times are in
  /// seconds from `origin`.
  std::vector<show::StepLane> lanes(TimePoint origin) const;

 private:
  struct Pass {
    std::string name;
    show::StepSpan::Kind kind;
    TimePoint begin, end;
  };
  std::vector<Pass> passes_;
};

/// Runs `body` on `ranks` simulated ranks and collects their lanes. A message takes 50 us and 10 ns
/// a byte; there is no shared memory.
show::StepTimeline record_timeline(
    int ranks, std::string about,
    const std::function<void(comm::SimulatedRank&, RankRecorder&)>& body);

/// ConfigError unless there are 2 to 8 ranks.
void check_ranks(int ranks);

/// The blocks of `model`; their passes F0, F1, ..., B1, B0 take 1 ms forward and 2 ms backward and
/// are recorded.
models::Blocks timed_blocks(const models::Blocks& model, RankRecorder& recorder);

}  // namespace trireme::inline v0::cli
