// OwnedSlice: the slice of a parameter that this rank updates, as raw memory.
//
// A ParameterSync says which slices a rank owns; an Optimizer updates exactly those. A slice
// belongs to one parameter, is cut at multiples of 4,096 elements (docs/numerics.md), and starts
// 64-byte aligned.
#pragma once

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
  bool weight_on_host = false, compute_on_host = false;  // in pinned memory: fetched and stored

  std::int64_t size() const noexcept { return end - begin; }
  Device weight_device() const noexcept { return weight_on_host ? Device{} : device; }
  Device compute_device() const noexcept { return compute_on_host ? Device{} : device; }
};

}  // namespace trireme::inline v0::optim
