#include "trireme/comm/shared/shared_backend.h"

#include "trireme/comm/engine.h"
#include "trireme/comm/shared/direct_move.h"
#include "trireme/comm/shared/direct_run.h"

namespace trireme::inline v0::comm {

bool has_direct_form(OpKind kind) noexcept {
  switch (kind) {
    case OpKind::Reduce:
    case OpKind::ReduceScatter:
    case OpKind::AllGather:
    case OpKind::Gather:
    case OpKind::Scatter:
    case OpKind::Broadcast:
    case OpKind::AllToAll:
      return true;
    default:
      return false;  // all_reduce has a form that needs no can_read()
  }
}

std::shared_ptr<Run> SharedBackend::begin(const std::shared_ptr<Call>& call) {
  Operation& op = call->operation;
  // An on_run observer needs a program's rounds, which these direct calls do not have.
  if (op.may_be_direct && engine_.arenas->can_read() && !engine_.facts.options.on_run)
    op.algorithm = "direct";
  if (op.algorithm != "direct") return nullptr;
  const bool adds =
      op.kind == OpKind::AllReduce || op.kind == OpKind::ReduceScatter || op.kind == OpKind::Reduce;
  if (adds) return std::make_shared<DirectRun>(engine_, call, pointers_);
  return std::make_shared<DirectMove>(engine_, call, pointers_);
}

}  // namespace trireme::inline v0::comm
