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
