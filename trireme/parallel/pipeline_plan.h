// PipelinePlan: how a model's block list is cut into stages, which rank has which, and the schedule
// of a step. Pure, but for reading a schedule's file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/models/block.h"
#include "trireme/parallel/pipeline/stage.h"
#include "trireme/plan/schedule.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

class PipelinePlan {
 public:
  static constexpr int kMostStages = 4096;  // that tags of messages tell apart (pipeline/link.cc)

  /// One stage on one rank: no pipeline.
  PipelinePlan() = default;
  /// `schedule`: a name of plan::schedules(), or a file (a dot or a slash is in its name).
  /// `chunks`: stages a rank holds, 0: as few as the schedule can have. ConfigError where the
  /// schedule does not suit, with its fault drawn.
  PipelinePlan(const std::string& schedule, int ranks, int chunks);

  int ranks() const noexcept { return ranks_; }
  int stages() const noexcept { return static_cast<int>(rank_of_stage_.size()); }
  const std::vector<int>& rank_of_stage() const noexcept { return rank_of_stage_; }
  std::vector<int> stages_of(int rank) const;
  int last_rank() const noexcept { return rank_of_stage_.back(); }

  /// Verified, with its transfers. A file has that many micro-batches or more, or ConfigError.
  const plan::Schedule& schedule(std::uint32_t micro_batches);
  /// Forward passes alone: stage by stage, every micro-batch.
  plan::Schedule forward_only(std::uint32_t micro_batches) const;

 private:
  std::string name_;
  int ranks_ = 1, chunks_ = 0;
  std::vector<int> rank_of_stage_ = {0};
  std::map<std::uint32_t, plan::Schedule> schedules_;  // by micro-batches
};

/// Stage s is blocks cut[s] to cut[s + 1]: as many blocks in each as can be. ConfigError with the
/// arithmetic where there are more stages than blocks.
std::vector<std::size_t> even_cut(std::size_t blocks, int stages);

/// ConfigError where a pipeline of `ranks` ranks cannot have that parallel.sync: one under which
/// ranks train copies of their own.
void check_pipeline_sync(const std::string& sync, int ranks);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
