#include "trireme/parallel/grid.h"

#include "trireme/base/error.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

Grid::Grid(comm::Communicator& world, const PipelinePlan& plan) : world_(world) {
  if (plan.ranks() == 1) {
    of_stage = {&world};
    last = &world;
    return;
  }
  if (world.size() % plan.ranks() != 0)
    throw ConfigError(
        "parallel.pipeline = " + std::to_string(plan.ranks()) + " does not divide " +
            std::to_string(world.size()) +
            " ranks: " + std::to_string(world.size() % plan.ranks()) + " are left over",
        {.rank = world.rank(),
         .operation = "strategy",
         .advice = "Start a multiple of " + std::to_string(plan.ranks()) + " ranks."});
  mesh_.emplace(world, MeshShape{.pipeline = plan.ranks(), .data = world.size() / plan.ranks()});
  pipeline = &mesh_->along(Axis::Pipeline);
  comm::Communicator& data = mesh_->along(Axis::Data);
  for (const int stage : plan.stages_of(pipeline->rank())) {
    if (of_stage.empty()) {
      of_stage.push_back(&data);
    } else {  // buckets of several stages come in an order that depends on the schedule
      further_.push_back(data.split(0, data.rank()));
      of_stage.push_back(further_.back().get());
    }
    if (stage + 1 == plan.stages()) last = of_stage.back();
  }
}

Duration Grid::time_waited() const {
  Duration sum = world_.time_waited();
  if (pipeline == nullptr) return sum;
  if (pipeline != &world_) sum += pipeline->time_waited();
  for (const comm::Communicator* group : of_stage) sum += group->time_waited();
  return sum;
}

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
