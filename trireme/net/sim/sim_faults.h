// What a simulated network does to messages but carry them: it loses packets, which are sent again
// and so come late, in order; it is slow now and then; and it carries nothing one way between two
// ranks for a while. Every choice is drawn from the network's seed.
//
// As over TCP, nothing is lost for ever while the connection lasts. Where a way is cut for longer
// than `patience`, the connection breaks and each end loses the other.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"

namespace trireme {
inline namespace v0 {
namespace net {

class Scheduler;

/// From `begin` to `end`, counted from the network's start, nothing goes from rank `from` to rank
/// `to`: `to` does not hear `from`, and `from` goes on hearing `to`.
struct SimCut {
  int from = 0, to = 0;
  Duration begin{};
  Duration end = Duration::max();
};

struct SimFaults {
  int lost_per_million = 0;  // packets
  /// Until a lost packet is sent again; twice as long each time that it is lost.
  Duration retransmission = std::chrono::milliseconds(200);
  int late_per_million = 0;  // messages that take up to `late` longer
  Duration late = std::chrono::milliseconds(50);
  std::vector<SimCut> cuts = {};
  Duration patience = Duration::max();
};

/// The ways of a network with faults, and when bytes moved on them.
class SimWays {
 public:
  SimWays(Scheduler& scheduler, SimFaults faults);
  /// When a message that leaves now and takes `transfer` of the time until `arrives` does arrive;
  /// TimePoint::max(): never.
  TimePoint arrival(int from, int to, std::size_t bytes, Duration transfer, TimePoint arrives);
  /// The first time from `when` on that a message of no length comes through.
  TimePoint through(int from, int to, TimePoint when) const;
  /// When bytes last moved between the two, either way; TimePoint::min(): never.
  TimePoint last_moved(int one, int other) const;
  /// Connections that break: both ends are in the list.
  struct Break {
    int rank = 0, peer = 0;
    TimePoint when;  // `rank` loses `peer`
  };
  const std::vector<Break>& breaks() const noexcept { return breaks_; }

 private:
  struct Way {
    TimePoint in_order{};                                   // nothing arrives before
    std::deque<std::pair<TimePoint, TimePoint>> transfers;  // from, until
  };
  Duration lost(std::size_t bytes);

  Scheduler& scheduler_;
  SimFaults faults_;
  const TimePoint start_;
  std::vector<Break> breaks_;
  std::map<std::pair<int, int>, Way> ways_;
};

}  // namespace net
}  // namespace v0
}  // namespace trireme
