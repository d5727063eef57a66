// Mesh: the ranks of a world as a grid of parallel axes. The only topology object; immutable;
// passed, never global. Made collectively.
#pragma once

#include <initializer_list>
#include <memory>

#include "trireme/base/mesh_shape.h"
#include "trireme/comm/communicator.h"

namespace trireme {
inline namespace v0 {
namespace comm {

class Mesh {
 public:
  /// ConfigError with the arithmetic where the shape does not give world's size, or where an axis
  /// other than Data is wider than one (they come with Communicator::split). `world` must outlive
  /// the Mesh.
  Mesh(Communicator& world, MeshShape shape);

  const MeshShape& shape() const noexcept { return shape_; }
  int size(Axis axis) const noexcept { return shape_.along(axis); }
  /// This rank's place on the axis.
  int coordinate(Axis axis) const noexcept;
  /// The ranks that differ from this one in `axis` alone.
  Communicator& along(Axis axis) const noexcept;
  /// The ranks that differ from this one in `axes` alone.
  Communicator& over(std::initializer_list<Axis> axes) const noexcept;

 private:
  Communicator& world_;
  MeshShape shape_;
  std::shared_ptr<Communicator> alone_;  // this rank only: every axis of size one
};

}  // namespace comm
}  // namespace v0
}  // namespace trireme
