#include "trireme/testing/emulated_device/race_check.h"

#include <algorithm>
#include <iterator>

namespace trireme::inline v0::testing {
namespace {

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

}  // namespace

std::optional<Race> RaceCheck::access(std::string_view name, StreamPoint point,
                                      const VectorClock& known, std::span<const Access> accesses) {
  std::optional<Race> race;
  const Toucher who{point, interned(name)};
  for (const Access& one : accesses) {
    if (one.bytes == 0) continue;
    const std::uintptr_t begin = number(one.begin), end = begin + one.bytes;
    for (auto at = add_gaps(begin, end); at != segments_.end() && at->first < end; ++at) {
      Segment& segment = at->second;
      bool earlier_writes = false;
      const Toucher* const other = unordered(segment, one.write, known, earlier_writes);
      if (other && !race) {
        race = {other->name,
                who.name,
                other->point.stream,
                point.stream,
                earlier_writes,
                one.write,
                reinterpret_cast<const void*>(at->first),
                segment.end - at->first};
      }
      note(segment, who, one.write);
    }
    join_neighbours(begin, end);
  }
  return race;
}

std::vector<StreamPoint> RaceCheck::touched_by(const void* begin, std::size_t bytes) {
  std::vector<StreamPoint> points;
  const std::uintptr_t first = number(begin), end = first + bytes;
  split_at(first);
  for (auto at = segments_.lower_bound(first); at != segments_.end() && at->first < end; ++at) {
    if (at->second.writer) points.push_back(at->second.writer->point);
    for (const Toucher& reader : at->second.readers) points.push_back(reader.point);
  }
  return points;
}

void RaceCheck::forget(const void* begin, std::size_t bytes) {
  const std::uintptr_t first = number(begin), end = first + bytes;
  split_at(first);
  split_at(end);
  segments_.erase(segments_.lower_bound(first), segments_.lower_bound(end));
}

std::string_view RaceCheck::interned(std::string_view name) {
  const auto found = names_.find(name);
  return found != names_.end() ? *found : *names_.emplace(name).first;
}

void RaceCheck::split_at(std::uintptr_t address) {
  auto after = segments_.upper_bound(address);
  if (after == segments_.begin()) return;
  const auto at = std::prev(after);
  if (at->first == address || at->second.end <= address) return;
  segments_.emplace_hint(after, address, at->second);
  at->second.end = address;
}

/// Cuts segments at `begin` and `end` and fills what lies between; returns the first.
RaceCheck::Segments::iterator RaceCheck::add_gaps(std::uintptr_t begin, std::uintptr_t end) {
  split_at(begin);
  split_at(end);
  std::uintptr_t covered = begin;
  for (auto at = segments_.lower_bound(begin); covered < end; ++at) {
    const std::uintptr_t next = at == segments_.end() ? end : std::min(at->first, end);
    if (next > covered) {
      at = segments_.emplace_hint(at, covered, Segment{next, {}, {}});
      covered = next;
    } else {
      covered = at->second.end;
    }
  }
  return segments_.find(begin);
}

/// Joins segments in and beside [begin, end) that were touched by the same operations.
void RaceCheck::join_neighbours(std::uintptr_t begin, std::uintptr_t end) {
  auto at = segments_.find(begin);
  if (at != segments_.begin()) --at;
  while (at != segments_.end() && at->first < end) {
    const auto next = std::next(at);
    if (next != segments_.end() && at->second.end == next->first &&
        at->second.writer == next->second.writer && at->second.readers == next->second.readers) {
      at->second.end = next->second.end;
      segments_.erase(next);
    } else {
      at = next;
    }
  }
}

/// An operation that has touched the segment and is not covered by `known`, an access's clock.
const RaceCheck::Toucher* RaceCheck::unordered(const Segment& segment, bool write,
                                               const VectorClock& known, bool& earlier_writes) {
  earlier_writes = true;
  if (segment.writer && !known.covers(segment.writer->point)) return &*segment.writer;
  earlier_writes = false;
  if (write)
    for (const Toucher& reader : segment.readers)
      if (!known.covers(reader.point)) return &reader;
  return nullptr;
}

void RaceCheck::note(Segment& segment, const Toucher& who, bool write) {
  if (write) {
    segment.writer = who;
    segment.readers.clear();
    return;
  }
  for (Toucher& reader : segment.readers) {
    if (reader.point.stream != who.point.stream) continue;
    reader = who;
    return;
  }
  segment.readers.push_back(who);
}

}  // namespace trireme::inline v0::testing
