#include "trireme/tensor/squares.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "trireme/kernel/cuda/flat.h"
#include "trireme/kernel/elementwise.h"
#include "trireme/tensor/devices/gpu_kernels.h"

namespace trireme::inline v0::tensor {

at::Tensor sum_by_halves(at::Tensor values) {
  for (std::int64_t width = values.size(-1) / 2; width > 0; width /= 2)
    values = values.narrow(-1, 0, width) + values.narrow(-1, width, width);
  return values.squeeze(-1);
}

static at::Tensor chunk_squares_by(const GpuKernels& gpu, const at::Tensor& flat) {
  const auto chunk = static_cast<std::int64_t>(kernel::kNormChunk);
  const at::Tensor values = flat.contiguous();
  const at::Tensor sums =
      at::empty({(values.numel() + chunk - 1) / chunk}, values.options().dtype(at::kDouble));
  const auto run = [&]<class T>(T) {
    const kernel::cuda::SquaresArguments<T> call{
        .values = values.const_data_ptr<T>(),
        .count = static_cast<std::uint64_t>(values.numel()),
        .chunk = kernel::kNormChunk,
        .sums = sums.data_ptr<double>()};
    gpu.run_warps("squares", DTypeOf<T>::value, call, (num_chunks(call) + 1) / 2);
  };
  values.scalar_type() == at::kDouble ? run(double()) : run(float());
  return sums;
}

at::Tensor chunk_squares(const at::Tensor& flat) {
  constexpr auto chunk = static_cast<std::int64_t>(kernel::kNormChunk);
  const bool long_type = flat.scalar_type() == at::kFloat || flat.scalar_type() == at::kDouble;
  if (const GpuKernels* const gpu = GpuKernels::of(flat); gpu != nullptr && long_type)
    return chunk_squares_by(*gpu, flat);
  at::Tensor values = flat.to(at::kDouble).square();
  const std::int64_t count = values.numel();
  if (count % chunk != 0) values = at::constant_pad_nd(values, {0, chunk - count % chunk});
  return sum_by_halves(values.view({-1, chunk}));
}

}  // namespace trireme::inline v0::tensor
