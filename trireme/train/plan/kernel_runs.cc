#include "trireme/train/plan/kernel_speeds.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <malloc.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/median.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/functions/functions.h"

namespace trireme::inline v0::train {
namespace {

using Sizes = std::vector<std::int64_t>;

bool has(const std::string& name, const char* word) { return name.find(word) != std::string::npos; }

// One call: a function of leaves, whose gradients are wanted.
struct Call {
  std::vector<at::Tensor> leaves;
  std::function<at::Tensor()> forward;
};

// Not random: the generator's state may decide bits of a training in this process.
at::Tensor leaf(const Sizes& sizes, at::ScalarType type) {
  return at::full(sizes, 0.5, at::TensorOptions().dtype(type)).requires_grad_();
}

Call linear_call(const models::Kernel& kernel, at::ScalarType type) {
  const Sizes& n = kernel.sizes;  // rows, in, out
  const at::Tensor x = leaf({n[0], n[1]}, type), weight = leaf({n[2], n[1]}, type);
  const at::Tensor bias = has(kernel.name, "bias") ? leaf({n[2]}, type) : at::Tensor();
  Call call{.leaves = {x, weight}, .forward = [=, gelu = has(kernel.name, "gelu")] {
              return gelu ? tensor::linear_gelu(x, weight, bias) : tensor::linear(x, weight, bias);
            }};
  if (bias.defined()) call.leaves.push_back(bias);
  return call;
}

// With the batch norm and the ReLU that follow it. fp16 is computed in fp32 (functions.h).
Call convolution_call(const Sizes& n, at::ScalarType type) {
  if (type == at::kHalf) type = at::kFloat;
  const std::int64_t stride = n[4], side = n[5] * stride;  // images, in, out, kernel, stride, side
  const at::Tensor x = leaf({n[0], n[1], side, side}, type);
  const at::Tensor weight = leaf({n[2], n[1], n[3], n[3]}, type);
  const auto stats = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor scale = leaf({n[2]}, stats), shift = leaf({n[2]}, stats);
  const at::Tensor mean = at::zeros({n[2]}, stats), variance = at::ones({n[2]}, stats);
  return {{x, weight, scale, shift}, [=, padding = (n[3] - 1) / 2] {
            const at::Tensor y = tensor::convolution(x, weight, stride, padding);
            return at::batch_norm(y, scale, shift, mean, variance, true, 0.1, 1e-5, false).relu_();
          }};
}

Call call_of(const models::Kernel& kernel, at::ScalarType type) {
  const Sizes& n = kernel.sizes;
  const auto stream = type == at::kDouble ? at::kDouble : at::kFloat;
  if (kernel.name.starts_with("linear")) return linear_call(kernel, type);
  if (kernel.name == "convolution") return convolution_call(n, type);
  if (has(kernel.name, "attention")) {  // sequences, positions, heads, channels of a head
    const at::Tensor qkv = leaf({n[0], n[1], 3 * n[2] * n[3]}, type);
    const bool causal = kernel.name != "attention";
    return {{qkv}, [=, heads = n[2]] { return tensor::attention(qkv, heads, causal); }};
  }
  if (kernel.name == "loss") {
    const at::Tensor logits = leaf({n[0], n[1]}, type), targets = at::zeros({n[0]}, at::kLong);
    return {{logits}, [=] { return tensor::cross_entropy_sum(logits, targets); }};
  }
  if (kernel.name == "gated") {
    const at::Tensor x = leaf({n[0], 2 * n[1]}, type);
    return {{x}, [=] { return tensor::gated(kernel::Gate::Silu, x); }};
  }
  const at::Tensor x = leaf({n[0], n[1]}, stream);
  if (kernel.name == "norm") {
    const at::Tensor weight = leaf({n[1]}, stream);
    return {{x, weight}, [=] { return tensor::layer_norm(x, weight, {}, 1e-5, type); }};
  }
  TRIREME_CHECK(kernel.name == "add");
  // Both terms' gradients are added where the stream forks.
  const at::Tensor update = leaf({n[0], n[1]}, type);
  return {{x, update}, [=] { return tensor::residual_add(x + x, update); }};
}

std::function<void()> run_of(const models::Kernel& kernel, at::ScalarType type) {
  if (kernel.name == "memory") {  // two numbers are read and one is written
    const at::Tensor sum = at::zeros(kernel.sizes), term = at::ones(kernel.sizes);
    return [=] { sum.add_(term); };
  }
  const Call call = call_of(kernel, type);
  const at::Tensor gradient = at::ones_like(call.forward().detach());
  return [=] { torch::autograd::grad({call.forward()}, call.leaves, {gradient}); };
}

// In a step, other kernels have filled the caches before a tensor is read again, so kernels take
// turns here, too.
KernelTimes times_of_runs(const std::vector<models::Kernel>& kernels, at::ScalarType type) {
  constexpr auto kLongEnough = std::chrono::milliseconds(100);
  constexpr std::size_t kLeast = 7;
  tensor::set_up_thread();
  std::vector<std::function<void()>> runs;
  for (const models::Kernel& kernel : kernels) {
    runs.push_back(run_of(kernel, type));
    runs.back()();  // allocates and sets up kernels
  }
  std::vector<std::vector<double>> times(kernels.size());
  const auto clock = RealWaiter::make();
  const TimePoint begin = clock->now(), end = begin + kLongEnough;
  const Duration computed_before = thread_time();
  while (times.back().size() < kLeast || clock->now() < end) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const TimePoint start = clock->now();
      runs[i]();
      times[i].push_back(to_seconds(clock->now() - start));
    }
  }
  const double all = to_seconds(clock->now() - begin);
  KernelTimes result;
  if (at::get_num_threads() == 1)
    result.computing = to_seconds(thread_time() - computed_before) / all;
  for (const std::vector<double>& one : times) result.seconds.push_back(median(one));
  return result;
}

}  // namespace

models::Kernel sample_of(models::Kernel kernel) {
  Sizes most = {1024, 8192};  // rows, channels
  if (kernel.name.starts_with("linear")) most = {1024, 1024, 1024};
  if (has(kernel.name, "attention")) most = {2, 1024, 4, 256};
  if (kernel.name == "convolution") most = {8, 512, 512, 7, 4, 32};
  if (kernel.name == "memory") most = {std::int64_t{8} << 20};
  TRIREME_CHECK(kernel.sizes.size() == most.size());
  for (std::size_t i = 0; i < most.size(); ++i)
    kernel.sizes[i] = std::clamp<std::int64_t>(kernel.sizes[i], 1, most[i]);
  return kernel;
}

double work_of(const models::Kernel& kernel) {
  double work = 1;
  for (const std::int64_t size : kernel.sizes) work *= static_cast<double>(size);
  if (has(kernel.name, "attention")) work *= static_cast<double>(kernel.sizes[1]);
  if (kernel.name == "convolution")  // kernels and images are squares, and no loop is a stride long
    work *= static_cast<double>(kernel.sizes[3] * kernel.sizes[5]) /
            static_cast<double>(kernel.sizes[4]);
  return work;
}

KernelTimes run_kernels(const std::vector<models::Kernel>& kernels, const std::string& precision,
                        int at_once) {
  std::vector<std::future<KernelTimes>> threads;
  for (int i = 0; i < at_once; ++i)
    threads.push_back(
        std::async(std::launch::async, times_of_runs, kernels, tensor::compute_type(precision)));
  KernelTimes means{.seconds = std::vector<double>(kernels.size())};
  for (auto& thread : threads) {
    const KernelTimes one = thread.get();
    for (std::size_t i = 0; i < kernels.size(); ++i) means.seconds[i] += one.seconds[i] / at_once;
    means.computing = std::min(means.computing, one.computing);
  }
  ::malloc_trim(0);  // set_up_process() keeps what is freed, and this process may only start ranks
  return means;
}

}  // namespace trireme::inline v0::train
