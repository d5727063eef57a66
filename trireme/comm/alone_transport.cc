#include "trireme/comm/alone_transport.h"

#include <cstring>
#include <new>

#include "trireme/base/check.h"

namespace trireme::inline v0::comm {

Work AloneTransport::send(int peer, net::Tag, std::span<const std::byte>) {
  TRIREME_CHECK(peer < 0);  // there is no peer
  return Work();
}

Work AloneTransport::recv(int peer, net::Tag, std::span<std::byte>) {
  TRIREME_CHECK(peer < 0);
  return Work();
}

net::Region AloneTransport::register_memory(std::span<std::byte> bytes, Device,
                                            std::span<const int>) {
  std::shared_ptr<void> owner;
  if (bytes.data() == nullptr) {
    constexpr std::align_val_t kPage{4096};
    auto* data = static_cast<std::byte*>(::operator new[](bytes.size(), kPage));
    std::memset(data, 0, bytes.size());
    owner = std::shared_ptr<void>(data, [](void* p) { ::operator delete[](p, kPage); });
    bytes = {data, bytes.size()};
  }
  return {{regions_++}, bytes, owner};
}

}  // namespace trireme::inline v0::comm
