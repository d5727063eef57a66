// Mesh: the ranks of a world as a grid of parallel axes. The only topology object; immutable;
// passed, never global.
//
// Rank r stands at the coordinates that r has as a number of mixed radix, pipeline first
// (outermost) and tensor last (innermost), so that neighbours in the tensor axis are neighbours in
// rank. Experts are shared by consecutive ranks of data x shard: those two axes then join ranks of
// the same experts, and are shorter than the shape says. Every set of axes has its group, made at
// once by Communicator::subgroup; what holds of groups holds of these: they share the world's
// transport and its first failure. Thread safe.
#pragma once

#include <array>
#include <initializer_list>
#include <memory>
#include <vector>

#include "trireme/base/mesh_shape.h"
#include "trireme/comm/communicator.h"

namespace trireme {
inline namespace v0 {
namespace comm {

class Mesh {
 public:
  /// Collective. ConfigError with the arithmetic where the shape does not give world's size, or
  /// `expert` does not divide data x shard (shard into parts, or data into parts of whole shards).
  /// `world` must outlive the Mesh.
  Mesh(Communicator& world, MeshShape shape);

  const MeshShape& shape() const noexcept { return shape_; }
  /// Ranks along(axis).
  int size(Axis axis) const noexcept { return sizes_[static_cast<std::size_t>(axis)]; }
  /// This rank's place on the axis.
  int coordinate(Axis axis) const noexcept;
  /// The ranks that differ from this one in `axis` alone.
  Communicator& along(Axis axis) const noexcept;
  /// The ranks that differ from this one in `axes` alone, in world's order.
  Communicator& over(std::initializer_list<Axis> axes) const noexcept;

 private:
  std::vector<int> members(unsigned axes) const;

  Communicator& world_;
  MeshShape shape_;
  std::array<int, kNumAxes> sizes_{};
  std::array<int, kNumAxes> coordinates_{};
  // By set of axes (bit i: axis i). Null: the world; axes of size one make no difference.
  std::array<std::shared_ptr<Communicator>, 1u << kNumAxes> groups_;
};

}  // namespace comm
}  // namespace v0
}  // namespace trireme
