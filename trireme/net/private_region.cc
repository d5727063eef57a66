#include "trireme/net/private_region.h"

#include <sys/mman.h>

#include <algorithm>

#include "trireme/net/socket.h"

namespace trireme::inline v0::net {

Region private_region(RegionId id, std::span<std::byte> bytes) {
  Region region{id, bytes, nullptr};
  if (bytes.data() != nullptr) return region;
  const std::size_t size = std::max<std::size_t>(bytes.size(), 1);
  void* const memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw_system_error("mmap of " + std::to_string(size) + " bytes");
  region.bytes = {static_cast<std::byte*>(memory), bytes.size()};
  region.owner = std::shared_ptr<void>(memory, [size](void* pages) { munmap(pages, size); });
  return region;
}

}  // namespace trireme::inline v0::net
