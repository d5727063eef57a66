// SimChannels: channels between the ranks of a simulated network. A frame takes virtual time, as a
// transport's message does (sim_network.h); frames of one direction arrive in order. With
// `broken_per_million`, a frame and its connection may be lost: both ends get PeerLost, as when a
// host's network fails, and may connect again.
#pragma once

#include <limits>
#include <memory>
#include <string>

#include "trireme/net/channel.h"
#include "trireme/net/sim/sim_network.h"

namespace trireme::inline v0::net {

struct SimChannelOptions {
  Duration alpha = std::chrono::microseconds(2);
  double bytes_per_second = 5e9;
  Duration jitter = std::chrono::microseconds(8);
  bool shared_memory = false;
  /// A rank has one link: its frames leave, and arrive, one after another. Without jitter, and with
  /// SimOptions::one_link, times are exact.
  bool one_link = false;
  int broken_per_million = 0;  // frames
  /// A socket takes this many bytes at once: the Work of a larger frame ends when all has arrived.
  std::size_t socket_bytes = std::numeric_limits<std::size_t>::max();
};

class SimChannels {
 public:
  /// `network` outlives it and all its channels.
  explicit SimChannels(SimNetwork& network, SimChannelOptions options = {});

  /// Call these on the rank's own thread. A rank has one acceptor at a time; a later one has the
  /// same address.
  std::unique_ptr<Acceptor> listen(int rank);
  /// PeerLost if nobody listens there.
  std::shared_ptr<Channel> dial(int rank, const std::string& address);

  /// The end of a process: what the rank has sent arrives; then the other ends of its channels get
  /// PeerLost. Its own ends fail at once, and its acceptor gets no more callers. The rank may
  /// listen and dial again, as a new process. Call it in the rank's progress context.
  void kill(int rank);
  /// Until mend(), nothing that one of the two sends reaches the other, neither is told, and
  /// dialling ends with TimeoutError. mend() breaks the channels on which something was lost.
  void cut(int one, int other);
  void mend(int one, int other);

  struct State;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace trireme::inline v0::net
