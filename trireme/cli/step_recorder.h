// Simulated ranks whose steps become pictures: their collectives and messages come from the trace
// that production code writes (observe/trace.h), passes of blocks take a given time of the virtual
// clock. So times are exact, and the same in every run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/comm/simulate.h"
#include "trireme/models/block.h"
#include "trireme/observe/trace.h"
#include "trireme/show/recorded_step.h"

namespace trireme {
inline namespace v0 {
namespace cli {

/// What one rank does. Used by its thread alone.
class RankRecorder {
 public:
  /// From now on it is recorded; what came before is forgotten.
  void start();
  /// What comes from now on is not recorded.
  void stop();
  /// A pass of `cost` on the virtual clock.
  void pass(std::string name, show::StepSpan::Kind kind, Duration cost);
  /// x, from whose gradient on backward runs `name`.
  at::Tensor timed(const at::Tensor& x, std::string name, Duration cost);

  std::shared_ptr<observe::Trace> trace = std::make_shared<observe::Trace>();
  std::shared_ptr<Waiter> waiter;
  TimePoint begin = TimePoint::max(), end = TimePoint::max();
  std::vector<models::NamedTensor> parameters;  // of timed_blocks(), with their blocks' names
  /// "computes", and a lane for each group in which the rank communicated; seconds from `origin`.
  std::vector<show::StepLane> lanes(TimePoint origin) const;

 private:
  struct Pass {
    std::string name;
    show::StepSpan::Kind kind;
    TimePoint begin, end;
  };
  std::vector<Pass> passes_;
};

/// A link that takes 50 us and 10 ns a byte; no memory is shared.
show::StepTimeline record_timeline(
    int ranks, std::string about,
    const std::function<void(comm::SimulatedRank&, RankRecorder&)>& body);

struct PassCosts {
  Duration forward = std::chrono::milliseconds(1), backward = std::chrono::milliseconds(2);
};
/// The blocks of `model`, whose passes F0, F1, ..., B1, B0 take these times and are recorded.
models::Blocks timed_blocks(const models::Blocks& model, RankRecorder& recorder,
                            const PassCosts& costs = {});

}  // namespace cli
}  // namespace v0
}  // namespace trireme
