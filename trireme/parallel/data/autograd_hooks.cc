#include "trireme/parallel/data/autograd_hooks.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace trireme {
inline namespace v0 {
namespace parallel {
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

}  // namespace

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

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
