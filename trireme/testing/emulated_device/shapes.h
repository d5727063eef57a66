// The sizes, strides and types of an operator's results, before it runs.
//
// LibTorch's structured operators compute these from the arguments' shapes (Meta tensors). All
// others run once on CPU tensors of zeros; the result is kept for calls of the same shapes.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

namespace trireme::inline v0::testing {

struct PredictedTensor {
  bool defined = false;
  at::ScalarType dtype = at::ScalarType::Undefined;
  std::vector<std::int64_t> sizes, strides;
};

struct Prediction {
  struct Return {
    bool is_list = false;
    std::vector<PredictedTensor> tensors;
  };
  std::vector<Return> returns;
  /// By argument; empty unless the argument is an `out`.
  std::vector<std::vector<PredictedTensor>> outs;
};

/// `arguments`: on an emulated device. Not for operators whose results' sizes depend on data.
Prediction predict_shapes(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

/// While it lives, no autograd and no autocast in this thread: a kernel's own calls.
class KernelScope {
 public:
  KernelScope();

 private:
  c10::impl::ExcludeDispatchKeyGuard no_autograd_, no_autocast_;
};

}  // namespace trireme::inline v0::testing
