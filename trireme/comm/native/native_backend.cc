#include "trireme/comm/native/native_backend.h"

#include <cstring>
#include <utility>

#include "trireme/comm/backend.h"
#include "trireme/comm/engine.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {
namespace {

net::Reduction reduction_of(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::Min:
      return net::Reduction::Min;
    case ReduceOp::Max:
      return net::Reduction::Max;
    case ReduceOp::Product:
      return net::Reduction::Product;
    default:
      return net::Reduction::Sum;
  }
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
