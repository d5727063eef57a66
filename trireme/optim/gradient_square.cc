#include "trireme/optim/gradient_square.h"

#include <ATen/Functions.h>

#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/flat_math.h"

namespace trireme::inline v0::optim {

at::Tensor dense_values(const at::Tensor& gradient) {
  return gradient.layout() == at::kStrided ? gradient : gradient.coalesce().values();
}

at::Tensor gradient_square(const at::Tensor& gradient) {
  const at::Tensor dense = dense_values(gradient);
  const bool wide = dense.scalar_type() == at::kDouble;
  const at::Tensor plain = dense.to(wide ? at::kDouble : at::kFloat).contiguous();
  return tensor::flat_math(tensor::device_of(plain.device()))
      .square_sum({plain.const_data_ptr(), tensor::dtype_of(plain),
                   static_cast<std::size_t>(plain.numel())});
}

}  // namespace trireme::inline v0::optim
