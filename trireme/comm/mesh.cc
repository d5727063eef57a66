#include "trireme/comm/mesh.h"

#include <algorithm>
#include <string>

#include "trireme/base/error.h"
#include "trireme/comm/alone_transport.h"

namespace trireme {
inline namespace v0 {
namespace comm {

Mesh::Mesh(Communicator& world, MeshShape shape) : world_(world), shape_(shape) {
  const std::string product =
      "pipeline " + std::to_string(shape.pipeline) + " x data " + std::to_string(shape.data) +
      " x shard " + std::to_string(shape.shard) + " x context " + std::to_string(shape.context) +
      " x tensor " + std::to_string(shape.tensor);
  if (shape.size() != world.size()) {
    throw ConfigError("mesh " + product + " = " + std::to_string(shape.size()) + " ranks, but " +
                          std::to_string(world.size()) + " are there",
                      {.rank = world.rank(),
                       .operation = "mesh",
                       .advice = "Make the product of the axes equal to the number of ranks."});
  }
  if (shape.size() != shape.data) {
    throw ConfigError("mesh " + product + ": only the data axis may be wider than 1",
                      {.rank = world.rank(),
                       .operation = "mesh",
                       .advice = "Set parallel.data to the number of ranks."});
  }
  CommunicatorOptions options;
  options.name = "alone";
  alone_ =
      std::make_shared<Communicator>(std::make_shared<AloneTransport>(world.waiter()), options);
}

int Mesh::coordinate(Axis axis) const noexcept { return axis == Axis::Data ? world_.rank() : 0; }

Communicator& Mesh::along(Axis axis) const noexcept { return over({axis}); }

Communicator& Mesh::over(std::initializer_list<Axis> axes) const noexcept {
  const bool data = std::find(axes.begin(), axes.end(), Axis::Data) != axes.end();
  return data && world_.size() > 1 ? world_ : *alone_;
}

}  // namespace comm
}  // namespace v0
}  // namespace trireme
