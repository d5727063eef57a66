#include "trireme/ps/copy_for_reader.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace trireme::inline v0::ps {

void copy_for_reader(void* to, const void* from, std::size_t bytes, std::size_t whole) noexcept {
#if defined(__SSE2__)
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kBeyondCaches = std::size_t{8} << 20;
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  const std::size_t into_line = reinterpret_cast<std::uintptr_t>(target) % kLine;
  const std::size_t head = into_line == 0 ? 0 : kLine - into_line;
  if (whole >= kBeyondCaches && bytes >= head + kLine) {
    std::memcpy(target, source, head);
    const std::size_t end = bytes - (bytes - head) % kLine;
    for (std::size_t at = head; at < end; at += kLine) {
      const auto* line = reinterpret_cast<const __m128i*>(source + at);
      auto* out = reinterpret_cast<__m128i*>(target + at);
      const __m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1),
                    c = _mm_loadu_si128(line + 2), d = _mm_loadu_si128(line + 3);
      _mm_stream_si128(out, a);
      _mm_stream_si128(out + 1, b);
      _mm_stream_si128(out + 2, c);
      _mm_stream_si128(out + 3, d);
    }
    _mm_sfence();
    std::memcpy(target + end, source + end, bytes - end);
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace trireme::inline v0::ps
