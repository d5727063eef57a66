// When the messages of a simulated network arrive, and its faults. A lost packet is sent again, so
// it arrives late but in order. Some messages are late. A cut stops all messages in one direction
// between two ranks for a while. Every choice comes from the network's seed.
//
// As over TCP, nothing is lost while the connection lasts. If a cut lasts longer than `patience`,
// the connection breaks and each end loses the other.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"

namespace trireme::inline v0::net {

class Scheduler;

/// From `begin` to `end`, counted from the network's start, no message from rank `from` reaches
/// rank `to`. Messages from `to` still reach `from`.
struct SimCut {
  int from = 0, to = 0;
  Duration begin{};
  Duration end = Duration::max();
};

struct SimFaults {
  int lost_per_million = 0;  // packets
  /// Time until a lost packet is sent again; doubles each time that the packet is lost.
  Duration retransmission = std::chrono::milliseconds(200);
  int late_per_million = 0;  // messages that take up to `late` longer
  Duration late = std::chrono::milliseconds(50);
  std::vector<SimCut> cuts = {};
  Duration patience = Duration::max();
};

/// The times of a message without faults; as in SimOptions.
struct SimPace {
  Duration alpha;
  double bytes_per_second;
  Duration jitter;
  bool one_link;
};

/// The paths between ranks, and the times at which bytes moved on them.
class SimWays {
 public:
  SimWays(Scheduler& scheduler, const SimPace& pace, SimFaults faults = {});
  /// Returns when a message that leaves now arrives; TimePoint::max(): never.
  TimePoint arrival(int from, int to, std::size_t bytes);
  /// The first time, at or after `when`, at which an empty message gets through.
  TimePoint through(int from, int to, TimePoint when) const;
  /// When bytes last moved between the two, in either direction; TimePoint::min(): never.
  TimePoint last_moved(int one, int other) const;
  /// A broken connection. The list has one entry for each end.
  struct Break {
    int rank = 0, peer = 0;
    TimePoint when;  // `rank` loses `peer`
  };
  const std::vector<Break>& breaks() const noexcept { return breaks_; }

 private:
  struct Way {
    TimePoint in_order{};                                   // no message arrives before it
    std::deque<std::pair<TimePoint, TimePoint>> transfers;  // from, until
  };
  struct Port {
    TimePoint out_free{}, in_free{};  // when the last message has left, has arrived
  };
  TimePoint arrival_without_faults(int from, int to, Duration transfer);
  Duration lost(std::size_t bytes);

  Scheduler& scheduler_;
  const SimPace pace_;
  SimFaults faults_;
  const TimePoint start_;
  std::vector<Break> breaks_;
  std::map<std::pair<int, int>, Way> ways_;
  std::map<int, Port> links_;  // one_link: by rank
};

}  // namespace trireme::inline v0::net
