// Asking for memory before it is written. Where another core has read a line, the store must first
// take the line away from it; the processor does that for a few stores at a time, but for many
// prefetches. A hint: nothing changes but time.
#pragma once

#include <cstddef>

namespace trireme {
inline namespace v0 {
namespace kernel {

inline void prefetch_for_writing(const void* data, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  const char* at = static_cast<const char*>(data);
  for (std::size_t i = 0; i < bytes; i += 64) asm volatile("prefetchw %0" ::"m"(at[i]));
#else
  (void)data, (void)bytes;
#endif
}

}  // namespace kernel
}  // namespace v0
}  // namespace trireme
