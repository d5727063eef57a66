// How the ranks of a job do not divide among the axes of its parallelism, with the arithmetic: one
// sentence for whoever plans a mesh and whoever builds it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/mesh_shape.h"

namespace trireme {
inline namespace v0 {

struct MeshRefusal {
  std::string what;    // "parallel.pipeline x parallel.tensor = 2 x 2 = 4 does not divide ..."
  std::string advice;  // "Use a multiple of 4 ranks."
};

/// Of a shape whose data and shard are whatever is left of `ranks`; none where they divide.
std::optional<MeshRefusal> refuse_mesh(const MeshShape& shape, int ranks);

/// "7 = 3 x 2 + 1"
std::string division(std::int64_t number, std::int64_t divisor);

}  // namespace v0
}  // namespace trireme
