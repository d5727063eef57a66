#include "trireme/parallel/grid.h"

#include <set>
#include <string>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

namespace {

void check_shape(const comm::Communicator& world, int pipeline, int context, int tensor) {
  const int model = pipeline * context * tensor;
  if (world.size() % model == 0) return;
  std::string names, numbers;
  int axes = 0;
  for (const auto& [name, size] : {std::pair{"parallel.pipeline", pipeline},
                                   {"parallel.context", context},
                                   {"parallel.tensor", tensor}}) {
    if (size == 1) continue;
    names += (axes == 0 ? "" : " x ") + std::string(name);
    numbers += (axes == 0 ? "" : " x ") + std::to_string(size);
    ++axes;
  }
  throw ConfigError(names + " = " + numbers +
                        (axes > 1 ? " = " + std::to_string(model) : std::string()) +
                        " does not divide " + std::to_string(world.size()) +
                        " ranks: " + std::to_string(world.size() % model) + " are left over",
                    {.rank = world.rank(),
                     .operation = "strategy",
                     .advice = "Start a multiple of " + std::to_string(model) + " ranks."});
}

}  // namespace

Grid::Grid(comm::Communicator& world, const PipelinePlan& plan, int own_context, int own_tensor)
    : world_(world) {
  if (plan.ranks() == 1 && own_context == 1 && own_tensor == 1) {
    of_stage = {&world};
    last = &world;
    return;
  }
  check_shape(world, plan.ranks(), own_context, own_tensor);
  mesh_.emplace(world, MeshShape{.pipeline = plan.ranks(),
                                 .data = world.size() / plan.ranks() / own_context / own_tensor,
                                 .context = own_context,
                                 .tensor = own_tensor});
  if (own_context > 1) context = &mesh_->along(Axis::Context);
  if (own_tensor > 1) tensor = &mesh_->along(Axis::Tensor);
  if (own_context * own_tensor > 1) layer = &mesh_->over({Axis::Context, Axis::Tensor});
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
  std::set<const comm::Communicator*> groups = {&world_, pipeline, context, tensor, layer};
  groups.insert(of_stage.begin(), of_stage.end());
  groups.erase(nullptr);
  Duration sum{};
  for (const comm::Communicator* group : groups) sum += group->time_waited();
  return sum;
}

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
