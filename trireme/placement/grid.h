// Grid: the groups of ranks that a Strategy works in.
//
// Rank (((p * D + d) * E + e) * C + c) * T + t has pipeline coordinate p, data coordinate d, expert
// coordinate e, context coordinate c and tensor coordinate t (comm/mesh.h); parallel.data counts
// D x E. Ranks that hold the same parts of a stage sync, replicate and fold batch statistics among
// themselves (`of_stage`). Values go from stage to stage in `pipeline`. Ranks that share a layer's
// sequences, tensors or experts communicate in `context`, `tensor` and `expert`. All ranks of the
// world vote. If all axes but data are 1, `of_stage` is the world.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "trireme/base/mesh_shape.h"
#include "trireme/comm/mesh.h"
#include "trireme/placement/pipeline_plan.h"

namespace trireme::inline v0::parallel {

struct Grid {
  /// Sizes of the axes along which ranks share a layer.
  struct Axes {
    int expert = 1, context = 1, tensor = 1;
    int size() const noexcept { return expert * context * tensor; }
  };
  /// Collective. ConfigError with the arithmetic if plan.ranks() x context x tensor does not divide
  /// world.size(), or `expert` does not divide the quotient.
  Grid(comm::Communicator& world, const PipelinePlan& plan, Axes axes);

  /// The number of consecutive ranks that compute the same micro-batches.
  int micro_batch_ranks() const { return layer == nullptr ? 1 : layer->size(); }
  comm::Communicator& data() const { return *of_stage.front(); }
  /// The time that this rank's user threads were blocked in all these groups and the world.
  Duration time_waited() const;
  /// The ranks that hold the last stage; null if this rank does not.
  comm::Communicator* last = nullptr;
  comm::Communicator* pipeline = nullptr;  // null: no pipeline
  comm::Communicator* expert = nullptr;    // null: a rank has all experts
  comm::Communicator* context = nullptr;   // null: a rank has whole sequences
  comm::Communicator* tensor = nullptr;    // null: layers are whole
  /// The ranks along the expert and tensor axes, which hold different parts of the model; or null.
  comm::Communicator* cut = nullptr;
  /// The ranks along all three axes, which run a layer together; null: a rank runs it alone.
  comm::Communicator* layer = nullptr;
  int tensor_ranks() const { return tensor == nullptr ? 1 : tensor->size(); }
  int expert_ranks() const { return expert == nullptr ? 1 : expert->size(); }
  /// For each stage of this rank: the ranks that hold the same parts of it.
  std::vector<comm::Communicator*> of_stage;

 private:
  comm::Communicator& world_;
  std::optional<comm::Mesh> mesh_;
  std::vector<std::shared_ptr<comm::Communicator>> further_;
};

}  // namespace trireme::inline v0::parallel
