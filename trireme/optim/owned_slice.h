// OwnedSlice: the slice of a parameter that this rank updates, as raw memory. What a device keeps in
// the host's memory is a tensor, too: LibTorch keeps it until copies that it has begun have ended.
//
// A ParameterSync says which slices a rank owns; an Optimizer updates exactly those. A slice
// belongs to one parameter, is cut at multiples of 4,096 elements (docs/numerics.md), and starts
// 64-byte aligned.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "trireme/base/buffer.h"

namespace trireme::inline v0::optim {

struct OwnedSlice {
  std::uint32_t parameter = 0;        // index in the model's parameter order
  std::string name;                   // "layer.0.attention.qkv.weight"
  std::int64_t begin = 0, end = 0;    // elements of the parameter
  DType master_dtype = DType::F32;    // F64 or F32
  void* weight = nullptr;             // master weight of [begin, end)
  const void* gradient = nullptr;     // tree sum of [begin, end), not yet scaled; master's dtype
  void* compute = nullptr;            // copy to refresh after the update; null: the master is used
  DType compute_dtype = DType::BF16;  // of that copy: BF16 or F16
  bool decay = true;                  // weight decay group
  Device device = {};                 // of the update, and of this memory but for:
  at::Tensor host_weight, host_compute;  // `weight` and `compute`, if they are in pinned memory

  std::int64_t size() const noexcept { return end - begin; }
  bool weight_on_host() const noexcept { return host_weight.defined(); }
  Device weight_device() const noexcept { return weight_on_host() ? Device{} : device; }
};

}  // namespace trireme::inline v0::optim
