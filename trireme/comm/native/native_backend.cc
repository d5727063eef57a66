// mpi-native: an all-reduce by the network's own reduction (net::Reducer), which adds in its own
// order. Kept for comparison, and for networks that add in hardware.
//
// Allowed for integers, Min and Max, whose bits do not depend on the order (except for which NaN a
// Min returns), and for other floating-point reductions if the job is not reproducible. It works
// only over the whole job, and not for 16-bit floats, which MPI lacks. Elsewhere a call that names
// it fails, and a communicator that has it as default uses `auto` (selection.h).
#include <cstring>
#include <utility>

#include "trireme/comm/backend.h"
#include "trireme/comm/choice/selection.h"
#include "trireme/comm/engine.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {
namespace {

net::Reduction reduction_of(ReduceOp op) noexcept {
  using enum net::Reduction;
  constexpr net::Reduction kReductions[] = {Sum, Sum, Min, Max, Product};
  return kReductions[static_cast<std::size_t>(op)];
}

// A rank without a term brings zeros. Only sums can have such ranks.
void fold_own_terms(const Operation& op) {
  if (op.terms.empty()) return void(std::memset(op.out.data, 0, op.out.bytes()));
  if (op.terms[0].value.data != op.out.data)
    std::memcpy(op.out.data, op.terms[0].value.data, op.out.bytes());
  for (std::size_t i = 1; i < op.terms.size(); ++i)
    kernel::combine(combine_of(op.op), op.dtype, op.out.data, op.terms[i].value.data, op.out.data,
                    op.count);
}

class NativeRun final : public Run {
 public:
  NativeRun(Engine& engine, net::Reducer& reducer, std::shared_ptr<Call> call)
      : engine_(engine), reducer_(reducer), call_(std::move(call)) {}

  /// Adds this rank's terms first, left to right.
  void run() override {
    const Operation& op = call_->operation;
    fold_own_terms(op);
    const Work work = reducer_.reduce(reduction_of(op.op), op.out);
    work.on_settled([self = engine_.shared_from_this(), call = call_](const auto& error) {
      if (error) return self->fail(error);
      const Operation& done = call->operation;
      if (done.op == ReduceOp::Mean)
        kernel::divide(done.dtype, done.out.data, done.count, done.total);
      self->finish(call);
    });
  }

 private:
  Engine& engine_;
  net::Reducer& reducer_;
  const std::shared_ptr<Call> call_;
};

class NativeBackend final : public Backend {
 public:
  NativeBackend(Engine& engine, net::Reducer& reducer) : engine_(engine), reducer_(reducer) {}
  std::shared_ptr<Run> begin(const std::shared_ptr<Call>& call) override {
    if (call->operation.algorithm != kMpiNative) return nullptr;
    return std::make_shared<NativeRun>(engine_, reducer_, call);
  }

 private:
  Engine& engine_;
  net::Reducer& reducer_;
};

}  // namespace

std::unique_ptr<Backend> make_native_backend(Engine& engine) {
  net::Reducer* const reducer = engine.transport->capabilities().reducer;
  return reducer ? std::make_unique<NativeBackend>(engine, *reducer) : nullptr;
}

}  // namespace trireme::inline v0::comm
