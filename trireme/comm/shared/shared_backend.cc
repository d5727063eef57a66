#include "trireme/comm/backend.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/shared/direct_move.h"
#include "trireme/comm/shared/direct_run.h"

namespace trireme::inline v0::comm {
namespace {

class SharedBackend final : public Backend {
 public:
  explicit SharedBackend(Engine& engine) : engine_(engine) {}
  std::shared_ptr<Run> begin(const std::shared_ptr<Call>& call) override;

 private:
  Engine& engine_;
  DirectPointers pointers_;
};

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

}  // namespace

std::unique_ptr<Backend> make_shared_backend(Engine& engine) {
  return std::make_unique<SharedBackend>(engine);
}

}  // namespace trireme::inline v0::comm
