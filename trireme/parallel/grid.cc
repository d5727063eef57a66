#include "trireme/parallel/grid.h"

#include <set>
#include <string>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

namespace {

void check_shape(const comm::Communicator& world, int pipeline, const Grid::Axes& axes) {
  const auto refuse = [&](const std::string& what, int divisor) {
    throw ConfigError(what,
                      {.rank = world.rank(),
                       .operation = "strategy",
                       .advice = "Start a multiple of " + std::to_string(divisor) + " ranks."});
  };
  const int model = pipeline * axes.context * axes.tensor;
  if (world.size() % model != 0) {
    std::string names, numbers;
    int several = 0;
    for (const auto& [name, size] : {std::pair{"parallel.pipeline", pipeline},
                                     {"parallel.context", axes.context},
                                     {"parallel.tensor", axes.tensor}}) {
      if (size == 1) continue;
      names += (several == 0 ? "" : " x ") + std::string(name);
      numbers += (several == 0 ? "" : " x ") + std::to_string(size);
      ++several;
    }
    refuse(names + " = " + numbers + (several > 1 ? " = " + std::to_string(model) : std::string()) +
               " does not divide " + std::to_string(world.size()) +
               " ranks: " + std::to_string(world.size() % model) + " are left over",
           model);
  }
  const int data = world.size() / model;
  if (data % axes.expert == 0) return;
  refuse("parallel.expert = " + std::to_string(axes.expert) +
             " does not divide data x shard: " + std::to_string(world.size()) + " ranks" +
             (model > 1 ? " / " + std::to_string(model) + " = " + std::to_string(data)
                        : std::string()) +
             ", and " + std::to_string(data) + " = " + std::to_string(data / axes.expert) + " x " +
             std::to_string(axes.expert) + " + " + std::to_string(data % axes.expert),
         model * axes.expert);
}

}  // namespace

Grid::Grid(comm::Communicator& world, const PipelinePlan& plan, Axes axes) : world_(world) {
  if (plan.ranks() == 1 && axes.size() == 1) {
    of_stage = {&world};
    last = &world;
    return;
  }
  check_shape(world, plan.ranks(), axes);
  mesh_.emplace(world, MeshShape{.pipeline = plan.ranks(),
                                 .data = world.size() / plan.ranks() / axes.context / axes.tensor,
                                 .context = axes.context,
                                 .tensor = axes.tensor,
                                 .expert = axes.expert});
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
    } else {  // buckets of several stages come in an order that depends on the schedule
      further_.push_back(data.split(0, data.rank()));
      of_stage.push_back(further_.back().get());
    }
    if (stage + 1 == plan.stages()) last = of_stage.back();
  }
}

// Axes of size one make no difference: groups may be one.
Duration Grid::time_waited() const {
  std::set<const comm::Communicator*> groups = {&world_, pipeline, expert, context,
                                                tensor,  cut,      layer};
  groups.insert(of_stage.begin(), of_stage.end());
  groups.erase(nullptr);
  Duration sum{};
  for (const comm::Communicator* group : groups) sum += group->time_waited();
  return sum;
}

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
