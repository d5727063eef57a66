// Copies memory that another process reads later. A large copy bypasses the caches, so the old
// content of the target is not read before it is overwritten.
#pragma once

#include <cstddef>

namespace trireme::inline v0::ps {

/// Copies `bytes` that do not overlap, of `whole` that the reader gets. All is written on return.
void copy_for_reader(void* to, const void* from, std::size_t bytes, std::size_t whole) noexcept;

}  // namespace trireme::inline v0::ps
