// One call of an operator on the emulated device: its checked arguments, its device and stream, and
// which of its arguments it writes.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>
#include <vector>

#include "trireme/testing/emulated_device/generator.h"
#include "trireme/testing/emulated_device/runtime.h"
#include "trireme/testing/emulated_device/storages.h"

namespace trireme::inline v0::testing {

class OperatorCall {
 public:
  /// Throws if the tensors are on several devices. CPU tensors of no dimension are numbers, and are
  /// copied here; indices on the CPU are copied, too.
  OperatorCall(const c10::OperatorHandle& op, torch::jit::Stack arguments);

  const c10::OperatorHandle& op() const { return op_; }
  const c10::FunctionSchema& schema() const { return op_.schema(); }
  const torch::jit::Stack& arguments() const { return arguments_; }
  int device() const { return device_; }
  std::string name() const;

  bool writes(std::size_t argument) const;
  /// The argument that is return value `index`; -1: a new value.
  int aliased_argument(std::size_t index) const;
  /// Whether the host has to know the result before it can go on.
  bool needs_result() const;

  /// The arguments for the CPU's kernel, on the executor.
  torch::jit::Stack cpu_arguments(CpuAliases& aliases) const;
  std::vector<Access> accesses() const;
  /// Gives `run` to the current stream of the device.
  void launch(std::vector<Access> accesses, std::function<void()> run) const;
  /// A new tensor on the device.
  at::Tensor allocate(at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides) const;

 private:
  void find_device();
  void take_cpu_tensors();
  /// The device's generator if the operator draws random numbers, else null.
  EmulatedGenerator* generator() const;
  bool has_generator_argument() const;

  const c10::OperatorHandle op_;
  torch::jit::Stack arguments_;
  int device_ = -1;
};

}  // namespace trireme::inline v0::testing
