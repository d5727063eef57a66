#include "trireme/sync/buckets/autograd_hooks.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace trireme::inline v0::parallel {
namespace {

struct TakeGradient final : torch::autograd::PostAccumulateGradHook {
  TakeGradient(std::size_t number, GradientHooks::Callback to)
      : index(number), callback(std::move(to)) {}
  void operator()(const at::Tensor& parameter) override {
    at::Tensor gradient = parameter.grad();
    parameter.mutable_grad().reset();
    if (gradient.defined()) callback(index, std::move(gradient));
  }
  std::size_t index;
  GradientHooks::Callback callback;
};

struct CallOnce final : torch::autograd::FunctionPreHook {
  explicit CallOnce(std::shared_ptr<std::function<void()>> shared) : callback(std::move(shared)) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    if (const auto call = std::exchange(*callback, nullptr)) call();
    return gradients;
  }
  std::shared_ptr<std::function<void()>> callback;  // of all the values' hooks
};

}  // namespace

bool has_gradient_hook(const at::Tensor& parameter) {
  return dynamic_cast<TakeGradient*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get()) !=
         nullptr;
}

std::uint64_t next_node() { return at::sequence_number::peek(); }

void before_backward(const std::vector<at::Tensor>& values, std::uint64_t first_node,
                     std::function<void()> callback) {
  const auto shared = std::make_shared<std::function<void()>>(std::move(callback));
  for (const at::Tensor& value : values) {
    if (!value.defined() || !value.requires_grad()) continue;
    const auto& node = value.grad_fn();
    if (node && node->sequence_nr() >= first_node)
      node->add_pre_hook(std::make_unique<CallOnce>(shared));
  }
}

GradientHooks::GradientHooks(std::vector<at::Tensor> parameters, Callback callback)
    : parameters_(std::move(parameters)) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].mutable_grad().reset();
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i],
                                                   std::make_unique<TakeGradient>(i, callback));
  }
}

GradientHooks::~GradientHooks() {
  for (const at::Tensor& parameter : parameters_)
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

}  // namespace trireme::inline v0::parallel
