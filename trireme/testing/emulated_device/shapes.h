// The sizes, strides and types of an operator's results, before it runs.
//
// Operators that LibTorch calls structured tell these from the arguments' shapes (Meta tensors).
// The others run once on CPU tensors of zeros; what came out is kept for calls of the same shapes.
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
  /// By argument; empty for those that are no `out`.
  std::vector<std::vector<PredictedTensor>> outs;
};

/// `arguments` are those of a call on an emulated device. Not for operators whose results' sizes
/// depend on data.
Prediction predict_shapes(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

/// While it lives, no autograd and no autocast in this thread: a kernel's own calls.
class KernelScope {
 public:
  KernelScope();

 private:
  c10::impl::ExcludeDispatchKeyGuard no_autograd_, no_autocast_;
};

}  // namespace trireme::inline v0::testing
