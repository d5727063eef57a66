#include "trireme/tensor/squares.h"

#include <ATen/Functions.h>

#include "trireme/kernel/elementwise.h"

namespace trireme::inline v0::tensor {

at::Tensor sum_by_halves(at::Tensor values) {
  for (std::int64_t width = values.size(-1) / 2; width > 0; width /= 2)
    values = values.narrow(-1, 0, width) + values.narrow(-1, width, width);
  return values.squeeze(-1);
}

at::Tensor chunk_squares(const at::Tensor& flat) {
  constexpr auto chunk = static_cast<std::int64_t>(kernel::kNormChunk);
  at::Tensor values = flat.to(at::kDouble).square();
  const std::int64_t count = values.numel();
  if (count % chunk != 0) values = at::constant_pad_nd(values, {0, chunk - count % chunk});
  return sum_by_halves(values.view({-1, chunk}));
}

}  // namespace trireme::inline v0::tensor
