// Token cross-entropy on the CPU.
#include <ATen/ops/full.h>
#include <c10/util/StringUtil.h>

#include "trireme/base/error.h"
#include "trireme/tensor/functions/autograd.h"
#include "trireme/tensor/functions/implementations.h"

namespace trireme::inline v0::tensor {
namespace {

void check_values(const at::Tensor& logits, const at::Tensor& targets) {
  const auto* target = targets.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < targets.numel(); ++i) {
    if (target[i] < logits.size(-1)) continue;
    throw ConfigError("target " + std::to_string(target[i]) + " is outside the vocabulary of " +
                          std::to_string(logits.size(-1)),
                      {.operation = "cross_entropy",
                       .advice = "The tokenizer and the model's vocabulary must agree."});
  }
}

class CrossEntropyFunction : public torch::autograd::Function<CrossEntropyFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits,
                            const at::Tensor& targets) {
    check_targets(logits, targets);
    const at::Tensor rows = logits.contiguous(), ids = targets.contiguous();
    check_values(rows, ids);
    const auto stat = stat_type(rows.scalar_type());
    const at::Tensor logsumexp = empty({ids.numel()}, stat);
    double loss = 0;
    for_type(rows.scalar_type(), [&]<class T>() {
      loss = kernel::cross_entropy<T>(data_of<T>(rows), data_of<std::int64_t>(ids),
                                      data_of<Stat<T>>(logsumexp), count_of(ids),
                                      size_of_dim(rows, -1));
    });
    ctx->save_for_backward({rows, ids, logsumexp});
    return at::full({}, loss, at::TensorOptions().dtype(stat));
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    refuse_second_derivative();
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &rows = saved[0], &ids = saved[1], &logsumexp = saved[2];
    const at::Tensor dlogits = empty(rows.sizes(), rows.scalar_type());
    const double scale = gradients[0].item<double>();
    for_type(rows.scalar_type(), [&]<class T>() {
      kernel::cross_entropy_backward<T>(data_of<T>(rows), data_of<std::int64_t>(ids),
                                        data_of<Stat<T>>(logsumexp), data_of<T>(dlogits),
                                        count_of(ids), size_of_dim(rows, -1), scale);
    });
    return {dlogits, Variable()};
  }
};

}  // namespace

void check_targets(const at::Tensor& logits, const at::Tensor& targets) {
  if (logits.dim() > 0 && targets.scalar_type() == at::kLong &&
      targets.sizes() == logits.sizes().slice(0, logits.sizes().size() - 1))
    return;
  throw ConfigError(
      "the targets are " + c10::str(targets.scalar_type(), " ", targets.sizes()) +
          " and the logits " + c10::str(logits.sizes()),
      {.operation = "cross_entropy", .advice = "Logits [..., V] need int64 (Long) targets [...]."});
}

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  if (by_gpu_kernels(logits)) return gpu::cross_entropy_sum(logits, targets);
  return by_kernels(logits) ? CrossEntropyFunction::apply(logits, targets)
                            : libtorch::cross_entropy_sum(logits, targets);
}

}  // namespace trireme::inline v0::tensor
