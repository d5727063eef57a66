// Requests cache lines before they are written. If another core has read a line, a store must first
// take the line from it; the processor overlaps only a few such stores, but many prefetches. A
// hint: it changes nothing but time.
#pragma once

#include <cstddef>

namespace trireme::inline v0::kernel {

inline void prefetch_for_writing(const void* data, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  const char* at = static_cast<const char*>(data);
  for (std::size_t i = 0; i < bytes; i += 64) asm volatile("prefetchw %0" ::"m"(at[i]));
#else
  (void)data, (void)bytes;
#endif
}

}  // namespace trireme::inline v0::kernel
