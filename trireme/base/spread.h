// Spread: goes over a range in parts, on the calling thread or on several.
#pragma once

#include <cstddef>
#include <functional>

namespace trireme::inline v0 {

/// Calls part(begin, end) for parts that cover [0, count), each once and in any order, and returns
/// when all calls have returned. Parts begin at multiples of 4,096. `part` does not throw.
using Spread =
    std::function<void(std::size_t count, const std::function<void(std::size_t, std::size_t)>&)>;

/// On the calling thread, as one part.
inline void in_one_part(std::size_t count,
                        const std::function<void(std::size_t, std::size_t)>& part) {
  if (count > 0) part(0, count);
}

}  // namespace trireme::inline v0
