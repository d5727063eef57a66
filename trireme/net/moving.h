// Transports that know when bytes last moved. `timeout` bounds silence, not work: a wait continues
// while bytes move, however slow the network is.
#pragma once

#include <algorithm>

#include "trireme/net/transport.h"

namespace trireme::inline v0::net {

class MovingTransport : public Transport {
 public:
  /// The last time that bytes moved to or from `peer`, on the waiter's clock; TimePoint::min() if
  /// none did. Small messages that were sent at once may not count. Any thread.
  virtual TimePoint last_moved(int peer) const noexcept = 0;
};

/// The same for any transport; TimePoint::min() if the transport does not know.
inline TimePoint last_moved(const Transport& transport, int peer) noexcept {
  const auto* const moving = dynamic_cast<const MovingTransport*>(&transport);
  return moving ? moving->last_moved(peer) : TimePoint::min();
}

/// The latest over all peers.
inline TimePoint last_moved(const Transport& transport) noexcept {
  TimePoint last = TimePoint::min();
  for (int peer = 0; peer < transport.size(); ++peer) {
    if (peer != transport.rank()) last = std::max(last, last_moved(transport, peer));
  }
  return last;
}

}  // namespace trireme::inline v0::net
