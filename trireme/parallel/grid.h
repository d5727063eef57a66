// Grid: the groups of ranks that a Strategy works in.
//
// Rank (((p * D + d) * E + e) * C + c) * T + t has pipeline coordinate p, data coordinate d, expert
// coordinate e, context coordinate c and tensor coordinate t (comm/mesh.h); parallel.data counts
// D x E. What concerns one stage's tensors (sync, replication, batch statistics) is settled among
// the ranks that hold the same parts of them, what goes from stage to stage among those of one
// pipeline, what a layer's ranks owe each other among those that share its tensors or experts, the
// vote among all. Where the other axes are 1, all of these are the world.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "trireme/base/mesh_shape.h"
#include "trireme/comm/mesh.h"
#include "trireme/parallel/pipeline_plan.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

struct Grid {
  /// Ranks that share a layer.
  struct Axes {
    int expert = 1, context = 1, tensor = 1;
    int size() const noexcept { return expert * context * tensor; }
  };
  /// Collective. ConfigError with the arithmetic where plan.ranks() x context x tensor does not
  /// divide world's, or expert what is left.
  Grid(comm::Communicator& world, const PipelinePlan& plan, Axes axes);

  /// Ranks that compute the same micro-batches stand side by side.
  int micro_batch_ranks() const { return layer == nullptr ? 1 : layer->size(); }
  comm::Communicator& data() const { return *of_stage.front(); }
  /// In all of them: how long this rank's user threads have been blocked.
  Duration time_waited() const;
  /// Of the last stage's ranks; null where this is none of them.
  comm::Communicator* last = nullptr;
  comm::Communicator* pipeline = nullptr;  // null: there is none
  comm::Communicator* expert = nullptr;    // null: a rank has all experts
  comm::Communicator* context = nullptr;   // null: a rank has whole sequences
  comm::Communicator* tensor = nullptr;    // null: layers are whole
  /// Those that have different parts of the model: over expert and tensor; null: of neither.
  comm::Communicator* cut = nullptr;
  /// The ranks of all three, which go through a layer together; null: a rank does so alone.
  comm::Communicator* layer = nullptr;
  int tensor_ranks() const { return tensor == nullptr ? 1 : tensor->size(); }
  int expert_ranks() const { return expert == nullptr ? 1 : expert->size(); }
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
