// Grid: the groups of ranks that a Strategy works in.
//
// Rank p * D + d has pipeline coordinate p and data coordinate d. What concerns one stage (sync,
// replication, batch statistics) is settled among the ranks that hold it, what goes from stage to
// stage among those of one pipeline, the vote among all. Without a pipeline all of these are the
// world.
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
  /// Collective. ConfigError with the arithmetic where plan.ranks() does not divide world's.
  Grid(comm::Communicator& world, const PipelinePlan& plan);

  comm::Communicator& data() const { return *of_stage.front(); }
  /// In all of them: how long this rank's user threads have been blocked.
  Duration time_waited() const;
  /// Of the last stage's ranks; null where this is none of them.
  comm::Communicator* last = nullptr;
  comm::Communicator* pipeline = nullptr;  // null: there is none
  /// The ranks that hold the same stage, of each of this rank's.
  std::vector<comm::Communicator*> of_stage;

 private:
  comm::Communicator& world_;
  std::optional<comm::Mesh> mesh_;
  std::vector<std::shared_ptr<comm::Communicator>> further_;
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
