// ModelState: the weights and buffers of the whole model, of which each rank may hold a part: as
// shards for checkpoints, and as a hash. Not thread safe.
#pragma once

#include <string>
#include <vector>

#include "trireme/placement/grid.h"
#include "trireme/placement/pipeline_plan.h"
#include "trireme/sync/model_parts.h"
#include "trireme/sync/sync_plan.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0::parallel {

class ModelState {
 public:
  /// All arguments outlive it. `groups`: those of the first stage.
  ModelState(const Grid& grid, const PipelinePlan& pipeline, const ModelParts& parts,
             const ShardGroups& groups)
      : grid_(grid), pipeline_(pipeline), parts_(parts), groups_(groups) {}

  /// SHA-256 (hex) over all weights, buffers and the whole tensors `more` in name order: name,
  /// shape, type, bytes. Collective where ranks hold parts; then one parameter at a time is whole.
  std::string hash(const std::vector<NamedShard>& more) const;
  /// This rank's weights and buffers.
  std::vector<NamedShard> shards() const;
  /// Converts shards of cut tensors' parts to shards of the whole tensors; others stay as they are.
  /// Also for optimizer state: "optimizer/NAME.exp_avg".
  std::vector<NamedShard> of_whole(std::vector<NamedShard> own) const;

 private:
  bool masters_are_whole() const { return parts_.whole().store.masters_are_whole(); }
  std::vector<NamedShard> whole_tensors() const;
  at::Tensor gathered_master(const ModelPart& part, std::uint32_t parameter,
                             const std::vector<NamedShard>& masters) const;
  at::Tensor over_pipeline(const at::Tensor& own, const ModelTensor& one) const;
  at::Tensor joined(const std::string& name, const at::Tensor& own, const models::Part& part) const;

  const Grid& grid_;
  const PipelinePlan& pipeline_;
  const ModelParts& parts_;
  const ShardGroups& groups_;
};

}  // namespace trireme::inline v0::parallel
