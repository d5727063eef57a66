// Grid: the groups of ranks that a Strategy works in.
//
// Rank (p * D + d) * T + t has pipeline coordinate p, data coordinate d and tensor coordinate t
// (comm/mesh.h). What concerns one stage's tensors (sync, replication, batch statistics) is settled
// among the ranks that hold the same parts of them, what goes from stage to stage among those of
// one pipeline, what a layer's ranks owe each other among those that share its tensors, the vote
// among all. Without a pipeline and tensor parallelism all of these are the world.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "trireme/comm/mesh.h"
#include "trireme/parallel/pipeline_plan.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

struct Grid {
  /// Collective. ConfigError with the arithmetic where plan.ranks() x tensor does not divide
  /// world's.
  Grid(comm::Communicator& world, const PipelinePlan& plan, int tensor);

  /// Ranks that compute the same micro-batches stand side by side.
  int micro_batch_ranks() const { return tensor == nullptr ? 1 : tensor->size(); }
  comm::Communicator& data() const { return *of_stage.front(); }
  /// In all of them: how long this rank's user threads have been blocked.
  Duration time_waited() const;
  /// Of the last stage's ranks; null where this is none of them.
  comm::Communicator* last = nullptr;
  comm::Communicator* pipeline = nullptr;  // null: there is none
  comm::Communicator* tensor = nullptr;    // null: layers are whole
  /// The ranks that hold the same parts of a stage, of each of this rank's.
  std::vector<comm::Communicator*> of_stage;

 private:
  comm::Communicator& world_;
  std::optional<comm::Mesh> mesh_;
  std::vector<std::shared_ptr<comm::Communicator>> further_;
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
