#include "trireme/comm/mesh.h"

#include <string>

#include "trireme/base/error.h"

namespace trireme::inline v0::comm {
namespace {

constexpr std::array<const char*, kNumAxes> kNames = {"pipeline", "data",    "shard",
                                                      "expert",   "context", "tensor"};

constexpr unsigned bit(int axis) noexcept { return 1u << axis; }

void check(const MeshShape& shape, const Communicator& world) {
  const auto refuse = [&](const std::string& what, const std::string& advice) {
    throw ConfigError(what, {.rank = world.rank(), .operation = "mesh", .advice = advice});
  };
  std::string product;
  for (int axis = 0; axis < kNumAxes; ++axis) {
    const std::string name = kNames[axis], length = std::to_string(shape.along(Axis(axis)));
    if (shape.along(Axis(axis)) < 1)
      refuse("the mesh's " + name + " axis has " + length + " ranks",
             "Give every axis at least one rank.");
    if (Axis(axis) == Axis::Expert) continue;  // not a factor of the number of ranks
    product += (axis == 0 ? "" : " x ") + name + " " + length;
  }
  if (shape.size() == world.size()) return;
  refuse("mesh " + product + " = " + std::to_string(shape.size()) + " ranks, but " +
             std::to_string(world.size()) + " are there",
         "Make the product of the axes equal to the number of ranks.");
}

// The sizes of the axes, with the expert axis taken out of data x shard (innermost ranks first).
std::array<int, kNumAxes> sizes_of(const MeshShape& shape, int rank) {
  int data = shape.data, shard = shape.shard;
  const int expert = shape.expert;
  if (shard % expert == 0) {
    shard /= expert;
  } else if (expert % shard == 0 && data % (expert / shard) == 0) {
    data /= expert / shard;
    shard = 1;
  } else {
    throw ConfigError("expert " + std::to_string(expert) + " does not divide data " +
                          std::to_string(data) + " x shard " + std::to_string(shard) +
                          " into equal parts of consecutive ranks",
                      {.rank = rank,
                       .operation = "mesh",
                       .advice = "Make expert a divisor of shard, or shard times one of data."});
  }
  return {shape.pipeline, data, shard, expert, shape.context, shape.tensor};
}

// "data+tensor"
std::string name_of(unsigned axes) {
  std::string name;
  for (int axis = 0; axis < kNumAxes; ++axis) {
    if (axes & bit(axis)) name += (name.empty() ? "" : "+") + std::string(kNames[axis]);
  }
  return name.empty() ? "alone" : name;
}

}  // namespace

Mesh::Mesh(Communicator& world, MeshShape shape) : world_(world), shape_(shape) {
  check(shape, world);
  sizes_ = sizes_of(shape, world.rank());
  unsigned wide = 0;
  for (int axis = kNumAxes - 1, rest = world.rank(); axis >= 0; --axis) {
    const int size = this->size(Axis(axis));
    coordinates_[static_cast<std::size_t>(axis)] = rest % size;
    rest /= size;
    if (size > 1) wide |= bit(axis);
  }
  if (wide == 0) return;
  for (unsigned axes = 0; axes < groups_.size(); ++axes) {
    if ((axes & wide) == wide) continue;
    groups_[axes] = (axes & wide) == axes ? world.subgroup(members(axes), name_of(axes))
                                          : groups_[axes & wide];  // a smaller index: exists
  }
}

std::vector<int> Mesh::members(unsigned axes) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < shape_.size(); ++rank) {
    bool same = true;
    for (int axis = kNumAxes - 1, rest = rank; axis >= 0; --axis) {
      const int size = this->size(Axis(axis));
      same &= (axes & bit(axis)) || rest % size == coordinates_[static_cast<std::size_t>(axis)];
      rest /= size;
    }
    if (same) ranks.push_back(rank);
  }
  return ranks;
}

Communicator& Mesh::along(Axis axis) const noexcept { return over({axis}); }

Communicator& Mesh::over(std::initializer_list<Axis> axes) const noexcept {
  unsigned set = 0;
  for (const Axis axis : axes) set |= bit(static_cast<int>(axis));
  const auto& group = groups_[set];
  return group ? *group : world_;
}

}  // namespace trireme::inline v0::comm
