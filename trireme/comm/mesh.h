// Mesh: the ranks of a world as a grid of parallel axes. The only topology object; immutable;
// passed, never global.
//
// The coordinates of rank r are its digits in mixed radix, from pipeline (outermost) to tensor
// (innermost), so neighbours on the tensor axis have consecutive ranks. With an expert axis,
// consecutive ranks of data x shard hold different experts; the data and shard axes then join ranks
// with the same experts, and are shorter than the shape says. The constructor makes a group
// (Communicator::subgroup) for every set of axes. Thread safe.
#pragma once

#include <array>
#include <initializer_list>
#include <memory>
#include <vector>

#include "trireme/base/mesh_shape.h"
#include "trireme/comm/communicator.h"

namespace trireme::inline v0::comm {

class Mesh {
 public:
  /// Collective. ConfigError, with the arithmetic, if `shape` has another number of ranks than
  /// `world`, or if `expert` is neither a divisor of shard nor shard times a divisor of data.
  /// `world` must outlive the Mesh.
  Mesh(Communicator& world, MeshShape shape);

  const MeshShape& shape() const noexcept { return shape_; }
  /// The number of ranks in along(axis).
  int size(Axis axis) const noexcept { return sizes_[static_cast<std::size_t>(axis)]; }
  /// This rank's coordinate on the axis, from 0.
  int coordinate(Axis axis) const noexcept { return coordinates_[static_cast<std::size_t>(axis)]; }
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
  // Indexed by set of axes (bit i: axis i). Null: the world.
  std::array<std::shared_ptr<Communicator>, 1u << kNumAxes> groups_;
};

}  // namespace trireme::inline v0::comm
