// Copies memory that another process reads later. What is large goes past the caches: its old content
// is then not read before it is overwritten, as it is by a usual store.
#pragma once

#include <cstddef>

namespace trireme::inline v0::ps {

/// Copies `bytes` that do not overlap, of `whole` bytes that the reader gets. All is written when it
/// returns.
void copy_for_reader(void* to, const void* from, std::size_t bytes, std::size_t whole) noexcept;

}  // namespace trireme::inline v0::ps
