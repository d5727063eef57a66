#include "trireme/tensor/flat_math.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "trireme/base/check.h"
#include "trireme/kernel/cuda/flat.h"
#include "trireme/kernel/elementwise.h"
#include "trireme/kernel/leaf_sum.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/devices/gpu_kernels.h"
#include "trireme/tensor/functions/typed.h"

namespace trireme::inline v0::tensor {
namespace {

class HostMath final : public FlatMath {
 public:
  Finite add_leaf(const void* gradient, DType gradient_type, double weight,
                  std::span<const void* const> open, void* out, std::size_t count) const override {
    return {.now = kernel::add_leaf(gradient, gradient_type, weight, open, out, count)};
  }
  void add_into(void* into, const void* from, DType type, std::size_t count) const override {
    kernel::add_into(into, from, type, count);
  }
  void fold(DType type, std::span<const kernel::FoldStep> steps, std::span<const void* const> in,
            void* out, std::size_t count) const override {
    kernel::fold(kernel::Combine::Sum, type, steps, in, {&out, 1}, count, 0);
  }
  void clear(void* at, std::size_t bytes) const override { std::memset(at, 0, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  std::vector<double> squares(std::span<const FlatRange> ranges) const override {
    std::vector<double> all;
    for (const FlatRange& range : ranges)
      for (std::size_t at = 0; at < range.count; at += kernel::kNormChunk)
        all.push_back(chunk_square(range, at));
    return all;
  }
  at::Tensor square_sum(const FlatRange& range) const override {
    double sum = 0;
    for (const double one : squares({&range, 1})) sum += one;
    return at::full({}, sum, at::kDouble);
  }
  std::size_t first_not_finite(std::span<const FlatRange> ranges) const override {
    const auto broken = [](const FlatRange& range) {
      return !kernel::all_finite(range.data, range.dtype, range.count);
    };
    return static_cast<std::size_t>(std::find_if(ranges.begin(), ranges.end(), broken) -
                                    ranges.begin());
  }

 private:
  static double chunk_square(const FlatRange& range, std::size_t at) {
    const std::size_t count = std::min(kernel::kNormChunk, range.count - at);
    if (range.dtype == DType::F64)
      return kernel::chunk_square_sum(static_cast<const double*>(range.data) + at, count);
    return kernel::chunk_square_sum(static_cast<const float*>(range.data) + at, count);
  }
};

class DeviceMath final : public FlatMath {
 public:
  explicit DeviceMath(Device device) : device_(device) {}

  // A sum in the order of kernel::add_leaf(): the leaf, then the open siblings, the youngest first.
  Finite add_leaf(const void* gradient, DType gradient_type, double weight,
                  std::span<const void* const> open, void* out, std::size_t count) const override {
    if (count == 0) return {};
    const c10::AutoGradMode no_grad(false);
    const DType type = gradient_type == DType::F64 ? DType::F64 : DType::F32;
    if (const GpuKernels* const gpu = GpuKernels::of(device_))
      return add_leaf_by(*gpu, gradient, gradient_type, weight, open, out, count);
    const at::Tensor to = flat(out, type, count);
    at::Tensor sum = gradient != nullptr
                         ? flat(gradient, gradient_type, count).to(to.scalar_type()) * weight + 0.0
                         : at::zeros_like(to);
    for (auto sibling = open.rbegin(); sibling != open.rend(); ++sibling)
      sum = flat(*sibling, type, count) + sum;
    to.copy_(sum);
    return {.later = at::isfinite(sum).all().logical_not()};
  }
  void add_into(void* into, const void* from, DType type, std::size_t count) const override {
    flat(into, type, count).add_(flat(from, type, count));
  }
  void fold(DType type, std::span<const kernel::FoldStep> steps, std::span<const void* const> in,
            void* out, std::size_t count) const override {
    const c10::AutoGradMode no_grad(false);
    std::vector<at::Tensor> slots;
    for (const void* one : in) slots.push_back(flat(one, type, count));
    for (const kernel::FoldStep& step : steps)
      slots[step.left] = slots[step.left] + slots[step.right];
    flat(out, type, count).copy_(slots.front());
  }
  void clear(void* where, std::size_t bytes) const override {
    flat(where, DType::U8, bytes).zero_();
  }
  void copy(void* to, const void* from, std::size_t bytes) const override {
    flat(to, DType::U8, bytes).copy_(flat(from, DType::U8, bytes));
  }

  std::vector<double> squares(std::span<const FlatRange> ranges) const override {
    const c10::AutoGradMode no_grad(false);
    std::vector<at::Tensor> sums;
    for (const FlatRange& range : ranges)
      if (range.count > 0)
        sums.push_back(chunk_squares(flat(range.data, range.dtype, range.count)));
    return numbers_on_host(sums);
  }
  at::Tensor square_sum(const FlatRange& range) const override {
    const c10::AutoGradMode no_grad(false);
    if (range.count == 0)
      return at::zeros({}, at::TensorOptions(at_device(device_)).dtype(at::kDouble));
    return chunk_squares(flat(range.data, range.dtype, range.count)).sum();
  }
  std::size_t first_not_finite(std::span<const FlatRange> ranges) const override {
    const c10::AutoGradMode no_grad(false);
    if (ranges.empty()) return 0;
    std::vector<at::Tensor> finite;
    for (const FlatRange& range : ranges)
      finite.push_back(range.count > 0
                           ? at::isfinite(flat(range.data, range.dtype, range.count)).all()
                           : at::ones({}, at::TensorOptions(at_device(device_)).dtype(at::kBool)));
    const at::Tensor all = on_host(at::stack(finite));
    const auto* first = static_cast<const bool*>(all.const_data_ptr());
    return static_cast<std::size_t>(std::find(first, first + ranges.size(), false) - first);
  }

 private:
  at::Tensor flat(const void* data, DType type, std::size_t count) const {
    return view_of({.data = const_cast<void*>(data),
                    .count = count,
                    .dtype = type,
                    .device = device_,
                    .owner = {}});
  }
  Finite add_leaf_by(const GpuKernels& gpu, const void* gradient, DType gradient_type,
                     double weight, std::span<const void* const> open, void* out,
                     std::size_t count) const {
    const at::Tensor not_finite =
        at::zeros({}, at::TensorOptions(at_device(device_)).dtype(at::kBool));
    for_type(scalar_type_of(gradient_type), [&]<class T>() {
      kernel::cuda::LeafArguments<T> call{.gradient = static_cast<const T*>(gradient)};
      using Sum = typename kernel::cuda::LeafArguments<T>::Sum;
      TRIREME_CHECK(open.size() <= std::size(call.open));
      for (const void* sibling : open)
        call.open[call.num_open++] = static_cast<const Sum*>(sibling);
      call.weight = static_cast<Sum>(weight);
      call.out = static_cast<Sum*>(out);
      call.count = count;
      call.not_finite = not_finite.data_ptr<bool>();
      gpu.run("leaf", gradient_type, call, GpuKernels::blocks_for(count));
    });
    return {.later = not_finite};
  }

  const Device device_;
};

std::atomic<int> libtorch_on_cpu{0};

at::Tensor chunk_squares_by(const GpuKernels& gpu, const at::Tensor& flat) {
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

}  // namespace

at::Tensor sum_by_halves(at::Tensor values) {
  for (std::int64_t width = values.size(-1) / 2; width > 0; width /= 2)
    values = values.narrow(-1, 0, width) + values.narrow(-1, width, width);
  return values.squeeze(-1);
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

LibTorchOnCpu::LibTorchOnCpu() { ++libtorch_on_cpu; }
LibTorchOnCpu::~LibTorchOnCpu() { --libtorch_on_cpu; }

Implementation implementation_of(Device device) {
  const bool kernels = device.kind == DeviceKind::Cpu && libtorch_on_cpu == 0;
  return kernels ? Implementation::Kernels : Implementation::LibTorch;
}

Implementation implementation_of(const at::Tensor& tensor) {
  return implementation_of(device_of(tensor.device()));
}

const FlatMath& flat_math(Device device) {
  static const HostMath host;
  if (implementation_of(device) == Implementation::Kernels) return host;
  static std::mutex mutex;
  static std::map<std::pair<DeviceKind, int>, std::unique_ptr<const DeviceMath>> devices;
  const std::lock_guard lock(mutex);
  auto& math = devices[{device.kind, device.index}];
  if (!math) math = std::make_unique<DeviceMath>(device);
  return *math;
}

}  // namespace trireme::inline v0::tensor
