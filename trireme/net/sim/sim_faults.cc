#include "trireme/net/sim/sim_faults.h"

#include <algorithm>
#include <cmath>

#include "trireme/net/sim/scheduler.h"

namespace trireme::inline v0::net {
namespace {

constexpr std::size_t kPacketBytes = 1460;
constexpr int kMostTimesLost = 5;
constexpr std::uint64_t kMillion = 1'000'000;
constexpr std::size_t kTransfersKept = 64;

TimePoint after(TimePoint start, Duration passed) {
  return passed == Duration::max() ? TimePoint::max() : start + passed;
}

}  // namespace

SimWays::SimWays(Scheduler& scheduler, const SimPace& pace, SimFaults faults)
    : scheduler_(scheduler), pace_(pace), faults_(std::move(faults)), start_(scheduler.now()) {
  for (std::size_t i = 0, given = faults_.cuts.size(); i < given; ++i) {
    SimCut& cut = faults_.cuts[i];
    if (cut.end - cut.begin <= faults_.patience) continue;
    const Duration broken = cut.begin + faults_.patience;
    cut.end = Duration::max();
    breaks_.push_back({cut.from, cut.to, start_ + broken});
    breaks_.push_back({cut.to, cut.from, start_ + broken});
    faults_.cuts.push_back({faults_.cuts[i].to, faults_.cuts[i].from, broken});
  }
}

// The delay of a message if one of its packets is lost, perhaps several times.
Duration SimWays::lost(std::size_t bytes) {
  if (faults_.lost_per_million == 0) return {};
  const double packets = 1 + static_cast<double>(bytes / kPacketBytes);
  const double intact = std::pow(1 - faults_.lost_per_million / 1e6, packets);
  auto chance = static_cast<std::uint64_t>((1 - intact) * kMillion);
  Duration later{}, pause = faults_.retransmission;
  for (int times = 0; times < kMostTimesLost && scheduler_.random().draw(kMillion) < chance;
       ++times) {
    later += pause;
    pause *= 2;
    chance = static_cast<std::uint64_t>(faults_.lost_per_million);  // for the one packet
  }
  return later;
}

TimePoint SimWays::arrival_without_faults(int from, int to, Duration transfer) {
  const TimePoint now = scheduler_.now();
  const auto extra = Duration(static_cast<Duration::rep>(
      scheduler_.random().draw(static_cast<std::uint64_t>(pace_.jitter.count()) + 1)));
  if (!pace_.one_link) return now + pace_.alpha + transfer + extra;
  TimePoint &out_free = links_[from].out_free, &in_free = links_[to].in_free;
  out_free = std::max(out_free, now) + transfer;
  return in_free = std::max(out_free + pace_.alpha + extra, in_free + transfer);
}

TimePoint SimWays::arrival(int from, int to, std::size_t bytes) {
  const auto transfer = Duration(
      static_cast<Duration::rep>(static_cast<double>(bytes) / pace_.bytes_per_second * 1e9));
  TimePoint arrives = arrival_without_faults(from, to, transfer);
  Way& way = ways_[{from, to}];
  if (way.in_order == TimePoint::max()) return way.in_order;
  const Duration loss = lost(bytes);
  arrives += loss;
  if (faults_.late_per_million > 0 &&
      scheduler_.random().draw(kMillion) < static_cast<std::uint64_t>(faults_.late_per_million)) {
    arrives += Duration(static_cast<Duration::rep>(
        scheduler_.random().draw(static_cast<std::uint64_t>(faults_.late.count()) + 1)));
  }
  // A message that would be in transit during a cut leaves after it.
  const TimePoint whole = through(from, to, std::max(arrives - transfer, way.in_order));
  if (whole == TimePoint::max()) return way.in_order = whole;  // and no later message arrives
  arrives = std::max(arrives, whole + transfer);
  if (loss > Duration::zero() || !faults_.cuts.empty()) {
    arrives = way.in_order = std::max(way.in_order, arrives);
  } else {
    arrives = std::max(arrives, way.in_order);
  }
  way.transfers.emplace_back(arrives - transfer, arrives);
  const TimePoint now = scheduler_.now();
  while (way.transfers.size() > kTransfersKept && way.transfers.front().second < now) {
    way.transfers.pop_front();
  }
  return arrives;
}

TimePoint SimWays::through(int from, int to, TimePoint when) const {
  const auto way = ways_.find({from, to});
  if (way != ways_.end() && way->second.in_order == TimePoint::max()) return TimePoint::max();
  for (bool again = true; again;) {
    again = false;
    for (const SimCut& cut : faults_.cuts) {
      if (cut.from != from || cut.to != to) continue;
      const TimePoint end = after(start_, cut.end);
      if (when < start_ + cut.begin || when >= end) continue;
      when = end;
      again = when != TimePoint::max();
    }
  }
  return when;
}

TimePoint SimWays::last_moved(int one, int other) const {
  const TimePoint now = scheduler_.now();
  TimePoint last = TimePoint::min();
  for (const auto& ends : {std::pair(one, other), std::pair(other, one)}) {
    const auto way = ways_.find(ends);
    if (way == ways_.end()) continue;
    for (const auto& [begin, end] : way->second.transfers) {
      if (begin <= now) last = std::max(last, std::min(now, end));
    }
  }
  return last;
}

}  // namespace trireme::inline v0::net
