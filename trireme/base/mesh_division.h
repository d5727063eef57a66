// Checks whether a number of ranks divides among the axes of a mesh, and states the arithmetic if
// not. Used by planners and by the mesh itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/mesh_shape.h"

namespace trireme::inline v0 {

struct MeshRefusal {
  std::string what;    // "parallel.pipeline x parallel.tensor = 2 x 2 = 4 does not divide ..."
  std::string advice;  // "Use a multiple of 4 ranks."
};

/// Checks `shape`, where data and shard share the ranks that the other axes leave. nullopt: they
/// divide.
std::optional<MeshRefusal> refuse_mesh(const MeshShape& shape, int ranks);

/// "7 = 3 x 2 + 1"
std::string division(std::int64_t number, std::int64_t divisor);

}  // namespace trireme::inline v0
