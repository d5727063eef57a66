// PipelinePlan: which rank of a pipeline holds which stages, and the schedule of a step; and how a
// block list is cut into stages. Pure, except for reading a schedule's file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/models/block.h"
#include "trireme/placement/stage.h"
#include "trireme/plan/schedule/schedule.h"

namespace trireme::inline v0::parallel {

class PipelinePlan {
 public:
  static constexpr int kMostStages = 4096;  // as message tags allow (pipeline/stage_link.cc)

  /// One stage on one rank: no pipeline.
  PipelinePlan() = default;
  /// `schedule`: a name from plan::schedules(), or a file (its name has a dot or a slash).
  /// `chunks`: stages per rank; 0: as few as the schedule allows. ConfigError, with a drawing of
  /// the fault, if the schedule is not valid.
  PipelinePlan(const std::string& schedule, int ranks, int chunks);

  int ranks() const noexcept { return ranks_; }
  int stages() const noexcept { return static_cast<int>(rank_of_stage_.size()); }
  const std::vector<int>& rank_of_stage() const noexcept { return rank_of_stage_; }
  std::vector<int> stages_of(int rank) const;
  int last_rank() const noexcept { return rank_of_stage_.back(); }

  /// Verified, with its transfers. ConfigError if a schedule file has fewer micro-batches.
  const plan::Schedule& schedule(std::uint32_t micro_batches);
  /// Forward passes only: stage by stage, every micro-batch.
  plan::Schedule forward_only(std::uint32_t micro_batches) const;

 private:
  std::string name_ = "1f1b";  // on one rank: each micro-batch forward, then back
  int ranks_ = 1, chunks_ = 0;
  std::vector<int> rank_of_stage_ = {0};
  std::map<std::uint32_t, plan::Schedule> schedules_;  // by number of micro-batches
};

/// Stage s is blocks [cut[s], cut[s + 1]); the stages have nearly equal numbers of blocks.
/// ConfigError with the arithmetic if there are more stages than blocks.
std::vector<std::size_t> even_cut(std::size_t blocks, int stages);

}  // namespace trireme::inline v0::parallel
