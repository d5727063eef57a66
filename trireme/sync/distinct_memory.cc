#include "trireme/sync/distinct_memory.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "trireme/base/error.h"

namespace trireme::inline v0::parallel {

std::int64_t DistinctMemory::Extent::end() const {
  std::int64_t last = offset;
  for (std::size_t dim = 0; dim < sizes.size(); ++dim) last += (sizes[dim] - 1) * strides[dim];
  return (last + 1) * width;
}

at::Tensor DistinctMemory::Extent::elements() const {
  at::Tensor places = at::full({}, offset, at::TensorOptions().dtype(at::kLong));
  for (std::size_t dim = 0; dim < sizes.size(); ++dim)
    places = places.unsqueeze(-1) +
             at::arange(sizes[dim], at::TensorOptions().dtype(at::kLong)) * strides[dim];
  return places.flatten();
}

bool DistinctMemory::share(const Extent& a, const Extent& b) {
  if (a.begin() >= b.end() || b.begin() >= a.end()) return false;
  // Strided tensors may interleave without sharing elements: columns of one matrix.
  if ((a.dense && b.dense) || a.width != b.width) return true;
  return at::isin(a.elements(), b.elements()).any().item<bool>();
}

void DistinctMemory::refuse_own(const Extent& extent) {
  if (extent.dense) return;
  const at::Tensor places = extent.elements();
  if (std::get<0>(at::_unique(places)).numel() == places.numel()) return;
  throw ConfigError("elements of parameter " + extent.name +
                        " share memory with one another (an expanded tensor?)",
                    {.operation = "model",
                     .label = extent.name,
                     .advice = "Give the module a contiguous() copy, and expand it in forward()."});
}

void DistinctMemory::add_leaf(const std::string& name, const at::Tensor& tensor) {
  const auto [at, added] = leaf_names_.emplace(tensor.unsafeGetTensorImpl(), name);
  if (!added)
    throw ConfigError(name + " and " + at->second + " are one tensor under two names",
                      {.operation = "model",
                       .advice = "Build them as two tensors: tie() makes them one weight."});
  add(name, tensor, true);
}

void DistinctMemory::add(const std::string& name, const at::Tensor& tensor, bool trained) {
  if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) return;
  const Extent extent{.name = name,
                      .trained = trained,
                      .dense = tensor.is_non_overlapping_and_dense(),
                      .offset = tensor.storage_offset(),
                      .width = static_cast<std::int64_t>(tensor.element_size()),
                      .sizes = tensor.sizes().vec(),
                      .strides = tensor.strides().vec()};
  if (trained) refuse_own(extent);
  const c10::StorageImpl* key = tensor.storage().unsafeGetStorageImpl();
  const auto at =
      storages_.try_emplace(key, Storage{tensor.storage().getWeakStorageImpl(), {}}).first;
  for (const Extent& other : at->second.extents) {
    if ((!trained && !other.trained) || !share(extent, other)) continue;
    throw ConfigError(
        name + " and " + other.name + " share memory, but are two tensors: each would get an " +
            "update of its own",
        {.operation = "model",
         .label = name,
         .advice = "Register one tensor under both names, or in a list of blocks tie() them; or "
                   "give one of them a clone()."});
  }
  at->second.extents.push_back(extent);
}

}  // namespace trireme::inline v0::parallel
