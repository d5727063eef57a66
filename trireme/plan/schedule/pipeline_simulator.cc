#include "trireme/plan/schedule/pipeline_simulator.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "trireme/base/refuse.h"
#include "trireme/plan/schedule/schedule_walk.h"

namespace trireme::inline v0::plan {
namespace {

void check(const Schedule& schedule, const PipelineTimes& times) {
  const auto refuse_times = [](const std::string& what) {
    refuse("schedule", what,
           "Give times of F, B (of the input) and W from 0 to 1e12, for all stages or for each.");
  };
  if (times.stages.size() != 1 && times.stages.size() != schedule.rank_of_stage.size()) {
    refuse_times("times are given for " + std::to_string(times.stages.size()) +
                 " stages, and the schedule has " + std::to_string(schedule.stages()));
  }
  // Far beyond any real time; sums of smaller times are exact enough to draw.
  constexpr double kMost = 1e12;
  const auto bad = [](double time) { return !(time >= 0) || time > kMost; };
  double all = 0;
  for (const StageTimes& stage : times.stages) {
    if (bad(stage.forward) || bad(stage.input) || bad(stage.weight))
      refuse_times("a time is negative or above 1e12");
    all += stage.all();
  }
  if (bad(times.message)) refuse_times("a message's time is negative or above 1e12");
  if (all <= 0) refuse_times("no pass takes time");
}

double duration_of(const Action& action, const PipelineTimes& times) {
  const StageTimes& stage = times.of(action.stage);
  switch (action.kind) {
    case ActionKind::Forward:
    case ActionKind::Recompute:
      return stage.forward;
    case ActionKind::Backward:
      return stage.input + stage.weight;
    case ActionKind::BackwardInput:
      return stage.input;
    case ActionKind::BackwardWeight:
      return stage.weight;
    case ActionKind::ForwardBackward: {
      const StageTimes& back = times.of(action.backward_stage);
      return stage.forward + back.input + back.weight;
    }
    default:
      return 0;
  }
}

class Simulation {
 public:
  Simulation(const Schedule& schedule, const PipelineTimes& times)
      : schedule_(schedule), times_(times), made_(schedule), clock_(schedule.order.size(), 0) {
    timeline_.ranks.resize(schedule.order.size());
  }

  void run(int rank, std::size_t position) {
    const Action& action = schedule_.order[static_cast<std::size_t>(rank)][position];
    double& clock = clock_[static_cast<std::size_t>(rank)];
    double begin = clock;
    for (const Value& value : needs_of(action, schedule_, transfers_)) {
      const bool hop = schedule_.rank_of_stage[value.stage] != rank;
      begin = std::max(begin, made_[value] + (hop ? times_.message : 0));
    }
    clock = begin + duration_of(action, times_);
    if (is_pass(action.kind) || action.kind == ActionKind::Recompute)
      timeline_.ranks[static_cast<std::size_t>(rank)].push_back({action, begin, clock});
    for (const Value& value : results_of(action, schedule_, transfers_)) made_[value] = clock;
  }

  Timeline finish() {
    double busy = 0;
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      busy += timeline_.busy(rank);
      const auto& passes = timeline_.ranks[static_cast<std::size_t>(rank)];
      if (passes.empty()) continue;
      timeline_.end = std::max(timeline_.end, passes.back().end);
      timeline_.cost = std::max(timeline_.cost, passes.back().end - passes.front().begin);
    }
    timeline_.bubble_rate = 1 - busy / schedule_.ranks() / timeline_.cost;
    return std::move(timeline_);
  }

 private:
  const Schedule& schedule_;
  const PipelineTimes& times_;
  bool transfers_ = has_transfers(schedule_);
  PerValue<double> made_;      // when a value exists on the rank that made it
  std::vector<double> clock_;  // when a rank becomes free
  Timeline timeline_;
};

}  // namespace

double Timeline::busy(int rank) const {
  double sum = 0;
  for (const TimedAction& one : ranks[static_cast<std::size_t>(rank)]) sum += one.end - one.begin;
  return sum;
}

Timeline simulate(const Schedule& schedule, const PipelineTimes& times) {
  check(schedule, times);
  Simulation simulation(schedule, times);
  const auto stuck =
      walk(schedule, [&](int rank, std::size_t position) { simulation.run(rank, position); });
  if (!stuck.empty()) {
    refuse("schedule", "the schedule deadlocks",
           "`trireme show schedule FILE` shows which ranks wait for each other.");
  }
  return simulation.finish();
}

}  // namespace trireme::inline v0::plan
