// An optimizer's rule (kernel/optimizers/options.h) over many slices of parameters at once: the
// code of the GPU's kernels trireme_update_f32 and trireme_update_f64 (kernels.cu). Elements have
// the bits of the CPU's kernels (element_math.h).
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "trireme/kernel/cuda/gpu_call.h"
#include "trireme/kernel/optimizers/element_math.h"
#include "trireme/kernel/optimizers/optimizers.h"

namespace trireme::inline v0::kernel {
namespace cuda {

inline constexpr int kMostArrays = 4, kMostSlices = 80, kMostRuleBytes = 80;
inline constexpr std::uint64_t kUpdateChunk = 16384;  // elements that a block takes at a time

struct UpdateSlice {
  void* arrays[kMostArrays] = {};  // in the rule's order; null if there is none
  std::uint64_t count = 0;         // elements
  std::uint32_t first_chunk = 0;   // chunks of the slices before it
};

/// The parameter of an update kernel; CUDA allows 4 KiB.
struct UpdateArguments {
  alignas(8) unsigned char rule[kMostRuleBytes];
  std::uint32_t number = 0;  // of the rule in AllRules
  std::uint32_t num_slices = 0, num_chunks = 0;
  UpdateSlice slices[kMostSlices];
};
static_assert(sizeof(UpdateArguments) <= 4096);

template <class T, class Rule>
TRIREME_GPU_CALL void update_element(const Rule& rule, const UpdateSlice& slice, std::uint64_t i) {
  constexpr RuleShape kShape = Rule::kShape;
  T values[kShape.arrays()] = {};
  for (int k = 0; k < kShape.in + kShape.both; ++k)
    if (slice.arrays[k] != nullptr) values[k] = static_cast<const T*>(slice.arrays[k])[i];
  rule(ElementMath<T>(), values);
  for (int k = kShape.in; k < kShape.arrays(); ++k)
    if (slice.arrays[k] != nullptr) static_cast<T*>(slice.arrays[k])[i] = values[k];
}

/// The share of one thread of `num_threads` in one block of `num_blocks`.
template <class T, class Rule>
TRIREME_GPU_CALL void update_share(const UpdateArguments& arguments, std::uint32_t block,
                                   std::uint32_t num_blocks, std::uint32_t thread,
                                   std::uint32_t num_threads) {
  const Rule rule = *reinterpret_cast<const Rule*>(arguments.rule);
  std::uint32_t at = 0;
  for (std::uint32_t chunk = block; chunk < arguments.num_chunks; chunk += num_blocks) {
    while (at + 1 < arguments.num_slices && arguments.slices[at + 1].first_chunk <= chunk) ++at;
    const UpdateSlice& slice = arguments.slices[at];
    const std::uint64_t begin = (chunk - slice.first_chunk) * kUpdateChunk;
    const std::uint64_t left = slice.count - begin;
    const std::uint64_t end = begin + (left < kUpdateChunk ? left : kUpdateChunk);
    for (std::uint64_t i = begin + thread; i < end; i += num_threads)
      update_element<T>(rule, slice, i);
  }
}

/// update_share() with the rule that the arguments name.
template <class T, class... Rule>
TRIREME_GPU_CALL void update_share(RuleList<Rule...>, const UpdateArguments& arguments,
                                   std::uint32_t block, std::uint32_t num_blocks,
                                   std::uint32_t thread, std::uint32_t num_threads) {
  std::uint32_t number = 0;
  ((number++ == arguments.number
        ? update_share<T, Rule>(arguments, block, num_blocks, thread, num_threads)
        : void()),
   ...);
}

template <class One, class... Rule>
constexpr std::uint32_t number_of(RuleList<Rule...>) {
  std::uint32_t number = 0, found = 0;
  ((found = std::is_same_v<One, Rule> ? number : found, ++number), ...);
  return found;
}

/// The arguments of the kernel calls that update the slices. Ignores the slices' first_chunk.
template <class Rule>
std::vector<UpdateArguments> update_arguments(const Rule& rule,
                                              std::span<const UpdateSlice> slices) {
  static_assert(Rule::kShape.arrays() <= kMostArrays && sizeof(Rule) <= kMostRuleBytes);
  static_assert(std::is_trivially_copyable_v<Rule> && alignof(Rule) <= 8);
  std::vector<UpdateArguments> calls;
  for (const UpdateSlice& slice : slices) {
    if (slice.count == 0) continue;
    if (calls.empty() || calls.back().num_slices == kMostSlices) {
      UpdateArguments& call = calls.emplace_back();
      std::memcpy(call.rule, &rule, sizeof rule);
      call.number = number_of<Rule>(AllRules());
    }
    UpdateArguments& call = calls.back();
    UpdateSlice& added = call.slices[call.num_slices++];
    added = slice;
    added.first_chunk = call.num_chunks;
    call.num_chunks += static_cast<std::uint32_t>((slice.count + kUpdateChunk - 1) / kUpdateChunk);
  }
  return calls;
}

}  // namespace cuda
}  // namespace trireme::inline v0::kernel
