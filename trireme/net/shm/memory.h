// Memory that processes of one host share: an anonymous memfd of sealed size, passed by descriptor.
// It has no name, so nothing is left behind when its processes end, even if they are killed.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "trireme/net/socket.h"

namespace trireme::inline v0::net {

/// A mapping; the destructor unmaps it.
class SharedMemory {
 public:
  SharedMemory(std::byte* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {}
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  std::span<std::byte> bytes() const noexcept { return {data_, bytes_}; }
  /// Allocates all of it, in pages of 2 MiB where the kernel has them (Linux 6.1 and newer), for all
  /// who map it. For memory that is used as a whole, again and again: passes over it take less time.
  void use_huge_pages() noexcept;

 private:
  std::byte* data_;
  std::size_t bytes_;
};

/// New zeroed memory, and the descriptor to pass to peers.
struct CreatedMemory {
  std::shared_ptr<SharedMemory> memory;
  Descriptor descriptor;
};
CreatedMemory create_memory(std::size_t bytes);

/// Maps a peer's descriptor. Throws RefusedError unless the memory is sealed and `bytes` long: if
/// it shrank, reading it would kill this process.
std::shared_ptr<SharedMemory> open_memory(const Descriptor& descriptor, std::size_t bytes);

}  // namespace trireme::inline v0::net
