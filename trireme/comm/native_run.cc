#include "trireme/comm/native_run.h"

#include <cstring>

#include "trireme/comm/combine.h"
#include "trireme/comm/engine.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {
namespace {

net::Reduction reduction_of(kernel::Combine combine) noexcept {
  switch (combine) {
    case kernel::Combine::Min:
      return net::Reduction::Min;
    case kernel::Combine::Max:
      return net::Reduction::Max;
    case kernel::Combine::Product:
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

}  // namespace

void run_native(Engine& engine, const std::shared_ptr<Call>& call) {
  const Operation& op = call->operation;
  fold_own_terms(op);
  const Work work = engine.transport().reduce(reduction_of(combine_of(op.op)), op.out);
  work.on_settled([self = engine.shared_from_this(), call](const std::exception_ptr& error) {
    if (error) return self->fail(error);
    const Operation& done = call->operation;
    if (done.op == ReduceOp::Mean)
      kernel::divide(done.dtype, done.out.data, done.count, done.total);
    self->finish(call);
  });
}

}  // namespace trireme::inline v0::comm
