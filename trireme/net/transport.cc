#include "trireme/net/transport.h"

#include <sys/mman.h>

#include <algorithm>

#include "trireme/net/socket.h"

namespace trireme::inline v0::net {

TimePoint last_moved(Transport& transport) noexcept {
  TimePoint last = TimePoint::min();
  const MoveTimes* const moves = transport.capabilities().moves;
  for (int peer = 0; moves && peer < transport.size(); ++peer) {
    if (peer != transport.rank()) last = std::max(last, moves->last_moved(peer));
  }
  return last;
}

Region private_region(std::size_t bytes) {
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  void* const memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw_system_error("mmap of " + std::to_string(size) + " bytes");
  return {{},
          {static_cast<std::byte*>(memory), bytes},
          std::shared_ptr<void>(memory, [size](void* pages) { munmap(pages, size); })};
}

}  // namespace trireme::inline v0::net
