#include "trireme/optim/gradient_square.h"

#include <ATen/Functions.h>

#include "trireme/optim/optimizer.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::optim {

double gradient_square(const at::Tensor& gradient) {
  const at::Tensor dense =
      gradient.layout() == at::kStrided ? gradient : gradient.coalesce().values();
  const bool wide = dense.scalar_type() == at::kDouble;
  const at::Tensor plain = dense.to(at::kCPU, wide ? at::kDouble : at::kFloat).contiguous();
  std::vector<double> squares;
  chunk_squares({.end = plain.numel(),
                 .master_dtype = tensor::dtype_of(plain),
                 .gradient = plain.const_data_ptr()},
                squares);
  double sum = 0;
  for (const double square : squares) sum += square;
  return sum;
}

}  // namespace trireme::inline v0::optim
