#include "trireme/placement/grid.h"

#include <set>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/mesh_division.h"

namespace trireme::inline v0::parallel {

Grid::Grid(comm::Communicator& world, const PipelinePlan& plan, Axes axes) : world_(world) {
  if (plan.ranks() == 1 && axes.size() == 1) {
    of_stage = {&world};
    last = &world;
    return;
  }
  MeshShape shape{.pipeline = plan.ranks(),
                  .context = axes.context,
                  .tensor = axes.tensor,
                  .expert = axes.expert};
  if (const auto refusal = refuse_mesh(shape, world.size()))
    throw ConfigError(refusal->what,
                      {.rank = world.rank(), .operation = "strategy", .advice = refusal->advice});
  shape.data = world.size() / shape.size();
  mesh_.emplace(world, shape);
  if (axes.expert > 1) expert = &mesh_->along(Axis::Expert);
  if (axes.context > 1) context = &mesh_->along(Axis::Context);
  if (axes.tensor > 1) tensor = &mesh_->along(Axis::Tensor);
  if (axes.expert * axes.tensor > 1) cut = &mesh_->over({Axis::Expert, Axis::Tensor});
  if (axes.size() > 1) layer = &mesh_->over({Axis::Expert, Axis::Context, Axis::Tensor});
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
    } else {  // the order of different stages' buckets depends on the schedule
      further_.push_back(data.split(0, data.rank()));
      of_stage.push_back(further_.back().get());
    }
    if (stage + 1 == plan.stages()) last = of_stage.back();
  }
}

// If some axes have size one, several of these pointers are the same group: count it once.
Duration Grid::time_waited() const {
  std::set<const comm::Communicator*> groups = {&world_, pipeline, expert, context,
                                                tensor,  cut,      layer};
  groups.insert(of_stage.begin(), of_stage.end());
  groups.erase(nullptr);
  Duration sum{};
  for (const comm::Communicator* group : groups) sum += group->time_waited();
  return sum;
}

}  // namespace trireme::inline v0::parallel
