#include "trireme/placement/pipeline_plan.h"

#include "trireme/base/error.h"
#include "trireme/plan/partition/partition.h"
#include "trireme/plan/schedule/generators/schedules.h"
#include "trireme/plan/schedule/schedule_transfers.h"

namespace trireme::inline v0::parallel {

PipelinePlan::PipelinePlan(const std::string& schedule, int ranks, int chunks)
    : name_(schedule),
      ranks_(ranks),
      chunks_(chunks),
      rank_of_stage_(plan::load_schedule(schedule, ranks, chunks, 0).rank_of_stage) {
  if (stages() > kMostStages)
    throw ConfigError(
        std::to_string(stages()) + " pipeline stages: there are at most " +
            std::to_string(kMostStages),
        {.operation = "pipeline", .advice = "Set parallel.pipeline or parallel.chunks to less."});
}

std::vector<int> PipelinePlan::stages_of(int rank) const {
  std::vector<int> stages;
  for (int stage = 0; stage < this->stages(); ++stage)
    if (rank_of_stage_[static_cast<std::size_t>(stage)] == rank) stages.push_back(stage);
  return stages;
}

const plan::Schedule& PipelinePlan::schedule(std::uint32_t micro_batches) {
  const auto found = schedules_.find(micro_batches);
  if (found != schedules_.end()) return found->second;
  return schedules_
      .emplace(micro_batches, plan::with_transfers(plan::load_schedule_of_step(
                                  name_, ranks_, chunks_, static_cast<int>(micro_batches))))
      .first->second;
}

// Each rank's order is a part of one order of all passes, stage by stage, so it cannot block.
plan::Schedule PipelinePlan::forward_only(std::uint32_t micro_batches) const {
  plan::Schedule schedule{.rank_of_stage = rank_of_stage_};
  schedule.order.resize(static_cast<std::size_t>(ranks_));
  for (int stage = 0; stage < stages(); ++stage) {
    const int rank = rank_of_stage_[static_cast<std::size_t>(stage)];
    auto& order = schedule.order[static_cast<std::size_t>(rank)];
    for (int micro = 0; micro < static_cast<int>(micro_batches); ++micro)
      order.push_back({plan::ActionKind::Forward, stage, micro});
  }
  return plan::with_transfers(std::move(schedule));
}

std::vector<std::size_t> even_cut(std::size_t blocks, int stages) {
  plan::check_stages(static_cast<std::int64_t>(blocks), stages);
  const auto count = static_cast<std::size_t>(stages);
  std::vector<std::size_t> cut;
  for (std::size_t stage = 0; stage <= count; ++stage) cut.push_back(blocks * stage / count);
  return cut;
}

}  // namespace trireme::inline v0::parallel
