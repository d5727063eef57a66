#include "trireme/testing/emulated_device/operators.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/clone.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "trireme/testing/emulated_device/allocators.h"
#include "trireme/testing/emulated_device/copies.h"
#include "trireme/testing/emulated_device/current_stream.h"
#include "trireme/testing/emulated_device/fallback.h"
#include "trireme/testing/emulated_device/runtime.h"
#include "trireme/testing/emulated_device/shapes.h"
#include "trireme/testing/emulated_device/storages.h"

namespace trireme::inline v0::testing {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

/// The device that a new tensor belongs to.
c10::Device place_of(std::optional<c10::Device> device, std::optional<c10::Layout> layout,
                     std::optional<bool> pinned) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::kStrided,
              "the emulated device has strided tensors only");
  TORCH_CHECK(!c10::pinned_memory_or_default(pinned), "only CPU tensors can be pinned");
  return emulated_device(device_or_current(device ? device->index() : -1));
}

at::Tensor empty_tensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                        std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                        std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(place_of(device, layout, pinned));
  return at::Tensor(at::detail::empty_generic(size, &device_allocator(), kKeys,
                                              c10::dtype_or_default(dtype), format));
}

at::Tensor empty_strided_tensor(at::IntArrayRef size, at::IntArrayRef stride,
                                std::optional<at::ScalarType> dtype,
                                std::optional<c10::Layout> layout,
                                std::optional<c10::Device> device, std::optional<bool> pinned) {
  const c10::DeviceGuard guard(place_of(device, layout, pinned));
  return at::Tensor(at::detail::empty_strided_generic(size, stride, &device_allocator(), kKeys,
                                                      c10::dtype_or_default(dtype)));
}

const at::Tensor& resize_tensor(const at::Tensor& self, at::IntArrayRef size,
                                std::optional<at::MemoryFormat> format) {
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  if (format) impl->empty_tensor_restride(*format);
  const std::size_t bytes =
      at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.itemsize(),
                                       static_cast<std::size_t>(self.storage_offset()));
  if (self.storage().nbytes() < bytes) resize_storage(self.storage(), bytes);
  return self;
}

at::Tensor& set_storage_and_sizes(at::Tensor& self, at::Storage source, std::int64_t offset,
                                  at::IntArrayRef size, at::IntArrayRef stride) {
  TORCH_CHECK(source.device_type() == self.device().type(), "set_() takes a storage of ",
              self.device(), ", not of ", source.device());
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(source);
  impl->set_storage_offset(offset);
  if (stride.size() == size.size()) {
    impl->set_sizes_and_strides(size, stride);
  } else {
    impl->set_sizes_contiguous(size);
  }
  const std::size_t bytes = at::detail::computeStorageNbytes(
      self.sizes(), self.strides(), self.itemsize(), static_cast<std::size_t>(offset));
  if (self.numel() > 0 && source.nbytes() < bytes) resize_storage(source, bytes);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<std::int64_t>(source.nbytes() / self.itemsize());
  return set_storage_and_sizes(self, std::move(source), 0, {count}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage_and_sizes(self, source.storage(), source.storage_offset(), source.sizes(),
                               source.strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  return set_storage_and_sizes(
      self,
      at::Storage(c10::Storage::use_byte_size_t(), 0, device_allocator().allocate(0),
                  &device_allocator(), true),
      0, {0}, {});
}

bool is_set_to(const at::Tensor& self, const at::Tensor& source) {
  return self.storage().unsafeGetStorageImpl() == source.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == source.storage_offset() && self.sizes() == source.sizes() &&
         self.strides() == source.strides();
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool non_blocking) {
  const KernelScope scope;
  copy_tensor(self, to, non_blocking);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  const KernelScope scope;
  to.resize_(self.sizes());
  copy_tensor(self, to, false);
  return to;
}

/// item(): the host waits.
at::Scalar scalar_of(const at::Tensor& self) {
  const KernelScope scope;
  at::Tensor value(at::detail::empty_cpu({}, self.scalar_type()));
  copy_tensor(self.reshape({}), value, false);
  return value.item();
}

/// set_data() may move a tensor here; LibTorch's check does not know such a backend.
bool can_take_data_of(const at::Tensor& self, const at::Tensor& from) {
  return self.layout() == c10::kStrided && from.layout() == c10::kStrided;
}

void record_stream_of(at::Tensor& self, c10::Stream stream) {
  Runtime::get().record_stream(self.storage().mutable_data(), from_c10(stream));
}

/// The kernel that scaled_dot_product_attention() takes for such tensors on the CPU.
std::int64_t attention_kernel(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, const std::optional<at::Tensor>& mask,
                              double dropout, bool is_causal, std::optional<double> scale,
                              bool enable_gqa) {
  CpuAliases aliases(CpuAliases::Mapping::Shown);
  const auto like = [&](const at::Tensor& tensor) {
    at::Tensor made = aliases.of(tensor);
    made.set_requires_grad(tensor.requires_grad());
    return made;
  };
  std::optional<at::Tensor> cpu_mask;
  if (mask && mask->defined()) cpu_mask = like(*mask);
  return at::native::_fused_sdp_choice_cpp(like(query), like(key), like(value), cpu_mask, dropout,
                                           is_causal, scale, enable_gqa);
}

void register_own(torch::Library& library, std::set<std::string>& own) {
  const auto add = [&](const char* name, auto* function) {
    library.impl(name, function);
    own.insert(std::string("aten::") + name);
  };
  add("empty.memory_format", &empty_tensor);
  add("empty_strided", &empty_strided_tensor);
  add("resize_", &resize_tensor);
  add("set_", &set_empty);
  add("set_.source_Tensor", &set_tensor);
  add("set_.source_Storage", &set_storage);
  add("set_.source_Storage_storage_offset", &set_storage_and_sizes);
  add("is_set_to", &is_set_to);
  add("_copy_from", &copy_from);
  add("_copy_from_and_resize", &copy_from_and_resize);
  add("_local_scalar_dense", &scalar_of);
  add("record_stream", &record_stream_of);
  add("_has_compatible_shallow_copy_type", &can_take_data_of);
  add("_fused_sdp_choice", &attention_kernel);
}

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

/// Every operator with a CPU kernel, so that operators decompose as on the CPU; and convolution,
/// which LibTorch would route to an overrideable kernel for such a backend.
void register_fallbacks(torch::Library& library, const std::set<std::string>& own) {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::set<std::string> names{"aten::convolution", "aten::_convolution",
                              "aten::convolution_backward"};
  for (const c10::OperatorName& name :
       dispatcher.getAllOpNamesForDispatchKey(c10::DispatchKey::CPU)) {
    const auto op = dispatcher.findSchema(name);
    if (op && name.name.starts_with("aten::")) names.insert(full_name(name));
  }
  for (const std::string& name : names)
    if (!own.contains(name))
      library.impl(name.substr(std::string("aten::").size()).c_str(),
                   torch::CppFunction::makeFromBoxedFunction<&run_on_device>());
}

}  // namespace

void register_operators() {
  // Never destroyed: LibTorch's dispatcher may be gone by then.
  auto* const library = new torch::Library(torch::Library::IMPL, "aten",
                                           c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto* const others = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1,
                                          __FILE__, __LINE__);
  std::set<std::string> own;
  register_own(*library, own);
  register_fallbacks(*library, own);
  others->fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_device>());
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&attention_kernel);
}

}  // namespace trireme::inline v0::testing
