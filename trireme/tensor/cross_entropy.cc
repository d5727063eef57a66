#include "trireme/tensor/cross_entropy.h"

#include <ATen/ops/cross_entropy_loss.h>

namespace trireme {
inline namespace v0 {
namespace tensor {

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor rows = logits.reshape({-1, logits.size(-1)});
  const at::Tensor wide = rows.scalar_type() == at::kBFloat16 ? rows.to(at::kFloat) : rows;
  return at::cross_entropy_loss(wide, targets.reshape({-1}), {}, at::Reduction::Sum, -1);
}

}  // namespace tensor
}  // namespace v0
}  // namespace trireme
