#include "trireme/testing/emulated_device/storages.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/testing/emulated_device/allocators.h"
#include "trireme/testing/emulated_device/arguments.h"
#include "trireme/testing/emulated_device/current_stream.h"
#include "trireme/testing/emulated_device/runtime.h"

namespace trireme::inline v0::testing {
namespace {

constexpr std::size_t kMaxAccessRuns = 1024;

void copy_shape(const at::Tensor& from, const at::Tensor& to) {
  c10::TensorImpl* const impl = to.unsafeGetTensorImpl();
  impl->set_storage_offset(from.storage_offset());
  impl->set_sizes_and_strides(from.sizes(), from.strides());
  if (from.is_conj()) to._set_conj(true);
  if (from.is_neg()) to._set_neg(true);
}

}  // namespace

at::Tensor CpuAliases::of(const at::Tensor& tensor) {
  const auto found = tensors_.find(tensor.unsafeGetTensorImpl());
  if (found != tensors_.end()) return found->second;
  const c10::Storage& storage = tensor.storage();
  c10::Storage& own = storages_[storage.unsafeGetStorageImpl()];
  if (!own) {
    void* const shown = const_cast<void*>(storage.data());
    void* const data = mapping_ == Mapping::Hidden ? Runtime::get().hidden(shown) : shown;
    own = c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(),
                       c10::DataPtr(data, at::kCPU));
  }
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(own), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  copy_shape(tensor, made);
  keep_number_mark(tensor, made);
  return tensors_[tensor.unsafeGetTensorImpl()] = made;
}

at::Tensor view_like(const at::Tensor& base, const at::Tensor& shape) {
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(base.storage()), base.key_set(), shape.dtype());
  copy_shape(shape, made);
  return made;
}

std::vector<ByteRun> byte_runs(const at::Tensor& tensor, std::size_t max_runs) {
  if (tensor.numel() == 0) return {};
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(tensor.const_data_ptr()));
  struct Dim {
    std::size_t stride, size;
  };
  std::vector<Dim> dims;
  std::size_t run = tensor.itemsize(), span = run, num_runs = 1;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    const Dim dim{static_cast<std::size_t>(tensor.stride(i)) * tensor.itemsize(),
                  static_cast<std::size_t>(tensor.size(i))};
    if (dim.size > 1 && dim.stride > 0) dims.push_back(dim);
  }
  std::sort(dims.begin(), dims.end(), [](Dim a, Dim b) { return a.stride < b.stride; });
  std::vector<Dim> outer;
  for (const Dim dim : dims) {
    span += dim.stride * (dim.size - 1);
    if (outer.empty() && dim.stride == run) {
      run *= dim.size;
    } else {
      outer.push_back(dim);
      num_runs *= dim.size;
    }
  }
  if (num_runs > max_runs) return {{begin, span}};
  std::vector<ByteRun> runs{{begin, run}};
  for (const Dim dim : outer) {
    const std::size_t before = runs.size();
    for (std::size_t i = 1; i < dim.size; ++i)
      for (std::size_t j = 0; j < before; ++j)
        runs.push_back({runs[j].begin + i * dim.stride, run});
  }
  return runs;
}

void add_accesses(std::vector<Access>& accesses, const at::Tensor& tensor, bool write) {
  for (const ByteRun run : byte_runs(tensor, kMaxAccessRuns))
    accesses.push_back({run.begin, run.bytes, write});
}

void resize_storage(const c10::Storage& storage, std::size_t bytes) {
  const c10::DeviceGuard guard(storage.device());
  const std::size_t kept = std::min(bytes, storage.nbytes());
  c10::DataPtr data = device_allocator().allocate(bytes);
  if (kept > 0) {
    device_allocator().copy_data(data.get(), storage.data(), kept);
    Runtime::get().record_stream(const_cast<void*>(storage.data()),
                                 current_stream(current_device()));
  }
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(bytes);
}

}  // namespace trireme::inline v0::testing
