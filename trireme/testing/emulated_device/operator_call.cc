#include "trireme/testing/emulated_device/operator_call.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "trireme/testing/emulated_device/allocators.h"
#include "trireme/testing/emulated_device/arguments.h"
#include "trireme/testing/emulated_device/current_stream.h"

namespace trireme::inline v0::testing {
namespace {

using torch::jit::Stack;

bool is_generator_type(const c10::Argument& argument) {
  const c10::TypePtr type = argument.type();
  return type->str() == "Generator" || type->str() == "Generator?";
}

/// Operators that change arguments without saying so in their schema: running statistics.
bool writes_unannounced(const std::string& name, std::size_t argument, const Stack& arguments) {
  if (name == "aten::native_batch_norm")
    return (argument == 3 || argument == 4) && arguments[5].toBool();
  return name == "aten::batch_norm_update_stats" && (argument == 1 || argument == 2);
}

bool takes_cpu_indices(const std::string& name) {
  return name == "aten::index" || name == "aten::_index_put_impl_";
}

/// Lets an operator that takes no generator draw from `own`, by way of LibTorch's default one.
class BorrowedDefaultGenerator {
 public:
  explicit BorrowedDefaultGenerator(const at::Generator& own)
      : own_(own), kept_(standard().unsafeGetGeneratorImpl()->get_state()) {
    move_state(own_, standard());
  }
  ~BorrowedDefaultGenerator() {
    move_state(standard(), own_);
    standard().unsafeGetGeneratorImpl()->set_state(*kept_);
  }
  BorrowedDefaultGenerator(const BorrowedDefaultGenerator&) = delete;

 private:
  static const at::Generator& standard() { return at::detail::getDefaultCPUGenerator(); }
  static void move_state(const at::Generator& from, const at::Generator& to) {
    to.unsafeGetGeneratorImpl()->set_state(*from.unsafeGetGeneratorImpl()->get_state());
  }
  const at::Generator& own_;
  c10::intrusive_ptr<c10::TensorImpl> kept_;
};

}  // namespace

OperatorCall::OperatorCall(const c10::OperatorHandle& op, Stack arguments)
    : op_(op), arguments_(std::move(arguments)) {
  find_device();
  take_cpu_tensors();
}

std::string OperatorCall::name() const {
  const c10::OperatorName& name = op_.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

void OperatorCall::find_device() {
  for (const c10::IValue& value : arguments_) {
    visit_tensors(value, [&](const at::Tensor& tensor) {
      if (is_emulated(tensor) && device_ < 0) device_ = tensor.device().index();
    });
  }
  for (const c10::IValue& value : arguments_)
    if (device_ < 0 && value.isDevice()) device_ = device_or_current(value.toDevice().index());
  TORCH_CHECK(device_ >= 0, name(), " has no argument on the emulated device");
}

void OperatorCall::take_cpu_tensors() {
  const auto checked = [&](const at::Tensor& tensor) {
    if (is_emulated(tensor) && tensor.device().index() == device_) return tensor;
    TORCH_CHECK(tensor.is_cpu() && (tensor.dim() == 0 || takes_cpu_indices(schema().name())),
                name(),
                ": expected all tensors to be on the same device, but found at least two devices, ",
                emulated_device(device_), " and ", tensor.device());
    at::Tensor copy = tensor.clone();
    keep_number_mark(tensor, copy);
    return copy;
  };
  for (c10::IValue& value : arguments_) {
    bool foreign = false;
    visit_tensors(value, [&](const at::Tensor& tensor) {
      foreign |= !is_emulated(tensor) || tensor.device().index() != device_;
    });
    if (foreign) value = map_tensors(value, checked);
  }
}

bool OperatorCall::writes(std::size_t argument) const {
  const c10::AliasInfo* const alias = schema().arguments()[argument].alias_info();
  return (alias && alias->isWrite()) || writes_unannounced(schema().name(), argument, arguments_);
}

int OperatorCall::aliased_argument(std::size_t index) const {
  const c10::AliasInfo* const alias = schema().returns()[index].alias_info();
  if (!alias) return -1;
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const c10::AliasInfo* const other = schema().arguments()[i].alias_info();
    if (other && *other == *alias) return static_cast<int>(i);
  }
  TORCH_CHECK(false, name(), " returns an argument that its schema does not name");
}

bool OperatorCall::needs_result() const {
  for (const c10::Argument& result : schema().returns()) {
    const bool list = result.type()->kind() == c10::TypeKind::ListType;
    const auto type =
        list ? result.type()->castRaw<c10::ListType>()->getElementType() : result.type();
    if (type->kind() != c10::TypeKind::TensorType) return true;
  }
  if (!op_.hasTag(at::Tag::dynamic_output_shape)) return false;
  if (schema().name() != "aten::index") return true;
  bool has_mask = false;
  visit_tensors(arguments_[1], [&](const at::Tensor& index) {
    has_mask |= index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
  });
  return has_mask;
}

bool OperatorCall::has_generator_argument() const {
  const auto& all = schema().arguments();
  return std::any_of(all.begin(), all.end(), is_generator_type);
}

EmulatedGenerator* OperatorCall::generator() const {
  // Attention draws numbers for dropout, which LibTorch's CPU kernel does not have.
  const bool draws = op_.hasTag(at::Tag::nondeterministic_seeded) &&
                     !schema().name().starts_with("aten::_scaled_dot_product");
  if (!draws && !has_generator_argument()) return nullptr;
  for (const c10::IValue& value : arguments_)
    if (value.isGenerator()) return &emulated_generator(value.toGenerator());
  return &emulated_generator(default_generator(device_));
}

Stack OperatorCall::cpu_arguments(CpuAliases& aliases) const {
  Stack made;
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    if (is_generator_type(schema().arguments()[i])) {
      made.emplace_back(generator()->cpu());
    } else if (arguments_[i].isDevice()) {
      made.emplace_back(c10::Device(at::kCPU));
    } else {
      made.push_back(map_tensors(arguments_[i], [&](const at::Tensor& tensor) {
        return is_emulated(tensor) ? aliases.of(tensor) : tensor;
      }));
    }
  }
  return made;
}

std::vector<Access> OperatorCall::accesses() const {
  std::vector<Access> made;
  for (const bool write : {false, true})  // reads first: x.add_(x) does not race with itself
    for (std::size_t i = 0; i < arguments_.size(); ++i)
      if (writes(i) == write)
        visit_tensors(arguments_[i], [&](const at::Tensor& tensor) {
          if (is_emulated(tensor)) add_accesses(made, tensor, write);
        });
  return made;
}

void OperatorCall::launch(std::vector<Access> accesses, std::function<void()> run) const {
  const StreamIndex stream = current_stream(device_);
  Launch work{name(), std::move(accesses), std::move(run)};
  EmulatedGenerator* const numbers = generator();
  if (!numbers) {
    Runtime::get().launch(stream, std::move(work));
    return;
  }
  if (!has_generator_argument()) {
    work.run = [run = std::move(work.run), numbers] {
      const BorrowedDefaultGenerator borrowed(numbers->cpu());
      run();
    };
  }
  numbers->launch(stream, std::move(work));
}

at::Tensor OperatorCall::allocate(at::ScalarType dtype, at::IntArrayRef sizes,
                                  at::IntArrayRef strides) const {
  return at::Tensor(
      at::detail::empty_strided_generic(sizes, strides, &device_allocator(),
                                        c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype));
}

}  // namespace trireme::inline v0::testing
