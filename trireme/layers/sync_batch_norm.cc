#include "trireme/layers/sync_batch_norm.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/refuse.h"
#include "trireme/job/job.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/functions/second_derivative.h"

namespace trireme::inline v0 {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// All dims except the channels'.
std::vector<std::int64_t> other_dims(const at::Tensor& x) {
  std::vector<std::int64_t> dims(static_cast<std::size_t>(x.dim()) - 1);
  std::iota(dims.begin(), dims.end(), 1);
  dims.front() = 0;
  return dims;
}

// Reshapes [C] so that it broadcasts against x.
at::Tensor beside(const at::Tensor& values, const at::Tensor& x) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = values.numel();
  return values.to(x.scalar_type()).view(shape);
}

// Sums these vectors over the ranks, in one reduction.
std::vector<at::Tensor> summed(comm::Communicator& group, const std::vector<at::Tensor>& parts,
                               const char* label) {
  const at::Tensor all = at::cat(parts).contiguous();
  tensor::wait_for(group.all_reduce(tensor::to_buffer(all), Sum, {.label = label}), all.device());
  std::vector<std::int64_t> sizes;
  for (const at::Tensor& part : parts) sizes.push_back(part.numel());
  return at::split_with_sizes(all, sizes);
}

// Keeps the group alive as long as the graph.
struct GroupHolder : torch::CustomClassHolder {
  explicit GroupHolder(std::shared_ptr<comm::Communicator> own) : group(std::move(own)) {}
  std::shared_ptr<comm::Communicator> group;
};

// The statistics of one call; fp64.
struct Statistics {
  at::Tensor mean, variance;  // [C]; variance over N
  at::Tensor count;           // [1]: values of a channel, over all ranks
};

Statistics statistics_of(comm::Communicator& group, const at::Tensor& x) {
  const at::Tensor wide = x.to(at::kDouble);
  const auto dims = other_dims(x);
  const double own = static_cast<double>(x.numel() / x.size(1));
  const auto sums =
      summed(group, {wide.sum(dims), wide.square().sum(dims), at::full({1}, own, wide.options())},
             "sync batch norm");
  Statistics result{.count = sums[2]};
  result.mean = sums[0] / result.count;
  result.variance = (sums[1] / result.count - result.mean.square()).clamp_min(0);
  return result;
}

// Ioffe & Szegedy 2015 (arXiv:1502.03167), with sums over all ranks.
class SyncNormFunction : public torch::autograd::Function<SyncNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const Statistics& statistics, double epsilon,
                            std::shared_ptr<comm::Communicator> group) {
    const at::Tensor inverse = (statistics.variance + epsilon).rsqrt();
    const at::Tensor normed = (x - beside(statistics.mean, x)) * beside(inverse, x);
    ctx->save_for_backward({normed, weight, inverse, statistics.count});
    ctx->saved_data["group"] =
        c10::IValue::make_capsule(c10::make_intrusive<GroupHolder>(std::move(group)));
    return normed * beside(weight, x) + beside(bias, x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    tensor::refuse_second_derivative();
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &normed = saved[0], &weight = saved[1], &inverse = saved[2], &count = saved[3];
    const at::Tensor& dy = gradients[0];
    const auto dims = other_dims(dy);
    const at::Tensor dy64 = dy.to(at::kDouble);
    const at::Tensor dbias = dy64.sum(dims), dweight = (dy64 * normed.to(at::kDouble)).sum(dims);
    const auto held = ctx->saved_data["group"].toCapsule();
    const auto sums = summed(*static_cast<const GroupHolder&>(*held).group, {dbias, dweight},
                             "sync batch norm, backward");
    const at::Tensor dx =
        (dy - beside(sums[0] / count, dy) - normed * beside(sums[1] / count, dy)) *
        beside(weight.to(at::kDouble) * inverse, dy);
    return {dx,
            dweight.to(weight.scalar_type()),
            dbias.to(weight.scalar_type()),
            Variable(),
            Variable(),
            Variable()};
  }
};

}  // namespace

SyncBatchNorm::SyncBatchNorm(Job& job, std::int64_t channels, SyncBatchNormOptions options)
    : SyncBatchNorm(job.world(), channels, options) {}

SyncBatchNorm::SyncBatchNorm(comm::Communicator& group, std::int64_t channels,
                             SyncBatchNormOptions options)
    : options_(options), group_(group.split(0, group.rank())) {
  if (channels < 1)
    refuse("sync batch norm", std::to_string(channels) + " channels", "Give x.size(1).");
  weight = register_parameter("weight", at::ones({channels}));
  bias = register_parameter("bias", at::zeros({channels}));
  running_mean = register_buffer("running_mean", at::zeros({channels}));
  running_var = register_buffer("running_var", at::ones({channels}));
  num_batches_tracked =
      register_buffer("num_batches_tracked", at::zeros({}, at::TensorOptions(at::kLong)));
}

at::Tensor SyncBatchNorm::forward(const at::Tensor& x) {
  if (x.dim() < 2 || x.size(1) != weight.numel() || x.numel() == 0)
    refuse("sync batch norm",
           "an input of shape " + c10::str(x.sizes()) + " for " + std::to_string(weight.numel()) +
               " channels",
           "Give [B, C] or [B, C, ...] with a sample at least.");
  if (at::isReducedFloatingType(x.scalar_type()))
    return forward(x.to(at::kFloat)).to(x.scalar_type());
  if (x.scalar_type() != at::kFloat && x.scalar_type() != at::kDouble)
    refuse("sync batch norm", std::string("an input of type ") + c10::toString(x.scalar_type()),
           "Give it floating-point numbers, such as x.to(at::kFloat).");
  const auto in_type = [&](const at::Tensor& own) { return own.to(x.scalar_type()); };
  if (!is_training())
    return at::batch_norm(x, in_type(weight), in_type(bias), in_type(running_mean),
                          in_type(running_var), false, 0, options_.epsilon, false);
  if (!x.is_cpu() && !std::exchange(reaches_devices_, true))
    group_->stage_through(tensor::make_device_copies());
  Statistics statistics;
  {
    const c10::AutoGradMode no_grad(false);
    statistics = statistics_of(*group_, x);
    // A step with NaN may be skipped, and must not stay in the statistics.
    const at::Tensor finite =
        at::isfinite(statistics.mean).all().logical_and(at::isfinite(statistics.variance).all());
    const at::Tensor unbiased = statistics.count / (statistics.count - 1).clamp_min(1);
    const auto follow = [&](at::Tensor& running, const at::Tensor& value) {
      const at::Tensor next = running.mul(1 - options_.momentum)
                                  .add(value.to(running.scalar_type()), options_.momentum);
      running.copy_(at::where(finite, next, running));
    };
    follow(running_mean, statistics.mean);
    follow(running_var, statistics.variance * unbiased);
    num_batches_tracked.add_(finite);
  }
  return SyncNormFunction::apply(x, weight, bias, statistics, options_.epsilon, group_);
}

}  // namespace trireme::inline v0
