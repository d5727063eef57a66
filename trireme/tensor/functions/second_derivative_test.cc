#include "trireme/tensor/functions/second_derivative.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "trireme/base/error.h"
#include "trireme/tensor/functions/functions.h"

namespace trireme::tensor {
namespace {

// x [2, 3, 6] to the output of each function.
const std::map<std::string, std::function<at::Tensor(const at::Tensor&)>> kFunctions = {
    {"linear",
     [](const at::Tensor& x) {
       return tensor::linear(x, at::ones({4, 6}), {});
     }},
    {"linear_gelu",
     [](const at::Tensor& x) {
       return tensor::linear_gelu(x, at::ones({4, 6}), {});
     }},
    {"gelu_tanh", tensor::gelu_tanh},
    {"gated", [](const at::Tensor& x) { return tensor::gated(kernel::Gate::Silu, x); }},
    {"layer_norm",
     [](const at::Tensor& x) {
       return tensor::layer_norm(x, at::ones({6}), {}, 1e-5, at::kFloat);
     }},
    {"add_layer_norm",
     [](const at::Tensor& x) {
       return tensor::add_layer_norm(x, x, at::ones({6}), {}, 1e-5).second;
     }},
    {"residual_add", [](const at::Tensor& x) { return tensor::residual_add(x, x); }},
    {"attention", [](const at::Tensor& x) { return tensor::attention(x, 1, true); }},
    {"embedding",
     [](const at::Tensor& x) {
       return tensor::embedding(at::zeros({2, 3}, at::kLong), x[0], {});
     }},
    {"cross_entropy_sum", [](const at::Tensor& x) {
       return tensor::cross_entropy_sum(x, at::zeros({2, 3}, at::kLong));
     }}};

TEST(SecondDerivatives, AreRefusedAndFirstOnesAreNot) {
  for (const auto& [name, function] : kFunctions) {
    const at::Tensor x = at::randn({2, 3, 6}).requires_grad_();
    const at::Tensor y = function(x).sum();
    y.backward({}, /*retain_graph=*/true);
    EXPECT_TRUE(x.grad().defined()) << name;
    try {
      y.backward({}, true, /*create_graph=*/true);
      ADD_FAILURE() << name;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.message(), ::testing::HasSubstr("second derivatives")) << name;
    }
  }
}

}  // namespace
}  // namespace trireme::tensor
