#include "trireme/sync/batch_statistics.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "trireme/models/module_block.h"
#include "trireme/placement/stage.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {

struct BatchStatistics::Norm {
  std::shared_ptr<torch::nn::Module> keep;
  std::function<void(std::optional<double>)> set_momentum;
  std::optional<double> momentum;
  at::Tensor mean, variance, count;           // the module's buffers
  at::Tensor running_mean, running_variance;  // between micro-batches
  std::int64_t seen = 0;                      // forward passes that were folded

  std::size_t features() const { return static_cast<std::size_t>(mean.numel()); }
  void remember() {
    running_mean = mean.clone();
    running_variance = variance.clone();
    seen = count.item<std::int64_t>();
  }
  // Graphs of other micro-batches hold the buffers, but their backward passes do not read them in
  // training. Writing through variable_data() does not raise autograd's version counter.
  void restore() {
    mean.variable_data().copy_(running_mean);
    variance.variable_data().copy_(running_variance);
    count.fill_(seen);
  }
};

namespace {

template <class Impl, class Norm>
std::unique_ptr<Norm> norm_of(const std::shared_ptr<torch::nn::Module>& module) {
  const auto typed = std::dynamic_pointer_cast<Impl>(module);
  if (!typed || !typed->running_mean.defined()) return nullptr;
  auto norm = std::make_unique<Norm>();
  norm->keep = module;
  norm->momentum = typed->options.momentum();
  norm->set_momentum = [typed](std::optional<double> value) { typed->options.momentum(value); };
  norm->mean = typed->running_mean;
  norm->variance = typed->running_var;
  norm->count = typed->num_batches_tracked;
  return norm;
}

// Null unless `module` is a batch norm with running statistics.
template <class Norm>
std::unique_ptr<Norm> any_norm_of(const std::shared_ptr<torch::nn::Module>& module) {
  auto norm = norm_of<torch::nn::BatchNorm1dImpl, Norm>(module);
  if (!norm) norm = norm_of<torch::nn::BatchNorm2dImpl, Norm>(module);
  if (!norm) norm = norm_of<torch::nn::BatchNorm3dImpl, Norm>(module);
  return norm;
}

}  // namespace

void BatchStatistics::add(const std::shared_ptr<torch::nn::Module>& module) {
  for (const auto& norm : norms_)
    if (norm->keep == module) return;  // blocks may share it
  auto norm = any_norm_of<Norm>(module);
  if (!norm) return;
  norm->remember();
  norm->set_momentum(1.0);
  width_ += 1 + 2 * norm->features();
  norms_.push_back(std::move(norm));
}

BatchStatistics::BatchStatistics(torch::nn::Module& module) {
  for (const auto& member : module.modules(/*include_self=*/false)) add(member);
}

BatchStatistics::BatchStatistics(const Stage& stage) {
  for (const Stage::Member& member : stage.members()) {
    const auto module = models::module_of(member.block);
    if (!module) continue;
    for (const auto& inner : module->modules(/*include_self=*/true)) add(inner);
  }
}

BatchStatistics::~BatchStatistics() {
  for (const auto& norm : norms_) norm->set_momentum(norm->momentum);
}

bool BatchStatistics::covers(const at::Tensor& buffer) const {
  for (const auto& norm : norms_)
    if (buffer.is_same(norm->mean) || buffer.is_same(norm->variance) || buffer.is_same(norm->count))
      return true;
  return false;
}

void BatchStatistics::drop() {
  const c10::AutoGradMode no_grad(false);
  captured_.clear();
  held_.clear();
  for (const auto& norm : norms_) norm->restore();
}

void BatchStatistics::reload() {
  held_.clear();
  for (const auto& norm : norms_) norm->remember();
}

std::vector<double> BatchStatistics::take() {
  const c10::AutoGradMode no_grad(false);
  std::vector<double> pairs = std::exchange(held_, {});
  pairs.resize(width_);  // zeros: did not run
  std::vector<at::Tensor> buffers;
  for (const auto& norm : norms_)
    for (const at::Tensor& buffer : {norm->count, norm->mean, norm->variance})
      buffers.push_back(buffer.to(at::kDouble));  // exact
  // All at once, since a device is waited for with each read.
  const std::vector<double> values = tensor::numbers_on_host(buffers);
  double* at = pairs.data();
  const double* value = values.data();
  for (const auto& norm : norms_) {
    const std::size_t numbers = 2 * norm->features();
    if (static_cast<std::int64_t>(*value) != norm->seen) {
      *at = 1;
      std::copy_n(value + 1, numbers, at + 1);
      norm->restore();
    }
    at += 1 + numbers;
    value += 1 + numbers;
  }
  return pairs;
}

void BatchStatistics::gather(comm::Communicator& world, const kernel::Assignment& assignment,
                             std::uint32_t total) {
  if (norms_.empty()) return;
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < world.size(); ++rank)
    counts.push_back(leaves_of(assignment, total, rank).size() * width_);
  std::vector<double> all(total * width_);  // in rank order
  world
      .all_gather_v(Buffer::of(std::span(captured_)), Buffer::of(std::span(all)), counts,
                    {.label = "batch statistics"})
      .wait();
  captured_.resize(all.size());
  const double* next = all.data();
  for (int rank = 0; rank < world.size(); ++rank)
    for (const std::uint32_t micro : leaves_of(assignment, total, rank)) {
      std::copy_n(next, width_, captured_.data() + micro * width_);
      next += width_;
    }
}

void BatchStatistics::fold() {
  const c10::AutoGradMode no_grad(false);
  const double* at = captured_.data();
  while (at != captured_.data() + captured_.size()) {
    for (const auto& norm : norms_) {
      const bool ran = *at++ != 0;
      const auto features = static_cast<std::int64_t>(norm->features());
      if (ran) {
        ++norm->seen;
        const double factor =
            norm->momentum ? *norm->momentum : 1.0 / static_cast<double>(norm->seen);
        for (at::Tensor* running : {&norm->running_mean, &norm->running_variance}) {
          const at::Tensor own = at::from_blob(const_cast<double*>(at), {features}, at::kDouble);
          at += features;
          running->mul_(1 - factor).add_(own.to(running->options()) * factor);
        }
      } else {
        at += 2 * features;
      }
    }
  }
  captured_.clear();
  for (const auto& norm : norms_) norm->restore();
}

}  // namespace trireme::inline v0::parallel
