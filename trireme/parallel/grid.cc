#include "trireme/parallel/grid.h"

#include <string>

#include "trireme/base/error.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

namespace {

void check_shape(const comm::Communicator& world, int pipeline, int tensor) {
  const int model = pipeline * tensor;
  if (world.size() % model == 0) return;
  const std::string ranks = std::to_string(model);
  throw ConfigError(
      (tensor == 1     ? "parallel.pipeline = " + ranks
       : pipeline == 1 ? "parallel.tensor = " + ranks
                       : "parallel.pipeline x parallel.tensor = " + std::to_string(pipeline) +
                             " x " + std::to_string(tensor) + " = " + ranks) +
          " does not divide " + std::to_string(world.size()) +
          " ranks: " + std::to_string(world.size() % model) + " are left over",
      {.rank = world.rank(),
       .operation = "strategy",
       .advice = "Start a multiple of " + ranks + " ranks."});
}

}  // namespace

Grid::Grid(comm::Communicator& world, const PipelinePlan& plan, int own_tensor) : world_(world) {
  if (plan.ranks() == 1 && own_tensor == 1) {
    of_stage = {&world};
    last = &world;
    return;
  }
  check_shape(world, plan.ranks(), own_tensor);
  mesh_.emplace(world, MeshShape{.pipeline = plan.ranks(),
                                 .data = world.size() / plan.ranks() / own_tensor,
                                 .tensor = own_tensor});
  if (own_tensor > 1) tensor = &mesh_->along(Axis::Tensor);
  comm::Communicator& data = mesh_->along(Axis::Data);
  if (plan.ranks() == 1) {
    of_stage = {&data};
    last = &data;
    return;
  }
  pipeline = &mesh_->along(Axis::Pipeline);
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
  if (pipeline != nullptr && pipeline != &world_) sum += pipeline->time_waited();
  if (tensor != nullptr && tensor != &world_) sum += tensor->time_waited();
  for (const comm::Communicator* group : of_stage)
    if (group != &world_) sum += group->time_waited();
  return sum;
}

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
