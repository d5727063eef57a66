// SharedBackend: runs collectives in which the ranks of a host access one another's memory, without
// messages. It takes calls of the algorithm "direct", and calls that may be direct if every rank
// can read every other's memory.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "trireme/comm/backend.h"
#include "trireme/comm/calls/op_kind.h"
#include "trireme/comm/shared/board.h"

namespace trireme::inline v0::comm {

class Engine;

/// Scratch vectors of a direct call, kept to avoid allocations.
struct DirectPointers {
  std::vector<std::byte*> in, out;
  std::vector<const void*> from;
  std::vector<void*> to;
  std::vector<Location> locations;
  std::size_t staged_terms = 0;  // of the last sum through the staging areas: FoldPlan::most_terms
};

class SharedBackend final : public Backend {
 public:
  explicit SharedBackend(Engine& engine) : engine_(engine) {}
  std::shared_ptr<Run> begin(const std::shared_ptr<Call>& call) override;

 private:
  Engine& engine_;
  DirectPointers pointers_;
};

/// True if `kind` has a direct form that needs only Arenas::can_read().
bool has_direct_form(OpKind kind) noexcept;

}  // namespace trireme::inline v0::comm
