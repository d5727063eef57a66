#include "trireme/sync/levels/ownership.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/kernel/elementwise.h"

namespace trireme::inline v0::parallel {
namespace {

constexpr std::size_t kUnitAlignment = 64;

// A position in a unit: an element of one of its members; the end is {members.size(), 0}.
struct Position {
  std::size_t member = 0;
  std::int64_t element = 0;
};

// The allowed cut nearest to `target` elements from the unit's start.
Position nearest_cut(const Unit& unit, std::int64_t target) {
  const auto chunk = static_cast<std::int64_t>(kernel::kNormChunk);
  for (std::size_t i = 0; i < unit.members.size(); ++i) {
    const std::int64_t count = unit.members[i].count;
    if (target >= count) {
      target -= count;
      continue;
    }
    const std::int64_t below = target / chunk * chunk;
    const std::int64_t above = std::min(below + chunk, count);
    const std::int64_t cut = target - below <= above - target ? below : above;
    return cut == count ? Position{i + 1, 0} : Position{i, cut};
  }
  return {unit.members.size(), 0};
}

std::size_t byte_of(const Unit& unit, const Position& at) {
  if (at.member == unit.members.size()) return unit.bytes;
  const Unit::Member& member = unit.members[at.member];
  return member.offset + static_cast<std::size_t>(at.element) * member.width;
}

std::int64_t elements_before(const Unit& unit, const Position& at) {
  std::int64_t sum = at.element;
  for (std::size_t i = 0; i < at.member; ++i) sum += unit.members[i].count;
  return sum;
}

}  // namespace

std::vector<std::size_t> Unit::counts() const {
  std::vector<std::size_t> counts;
  for (std::size_t r = 0; r + 1 < cuts.size(); ++r) counts.push_back(cuts[r + 1] - cuts[r]);
  return counts;
}

Ownership::Ownership(int owners)
    : owners_(owners),
      pieces_(static_cast<std::size_t>(owners)),
      owned_upto_(static_cast<std::size_t>(owners) + 1, 0) {
  TRIREME_CHECK(owners > 0);
}

std::uint32_t Ownership::add(std::vector<Unit::Member> members) {
  Unit unit{.members = std::move(members)};
  std::int64_t elements = 0;
  for (Unit::Member& member : unit.members) {
    member.offset = unit.bytes;
    const std::size_t bytes = static_cast<std::size_t>(member.count) * member.width;
    unit.bytes += (bytes + kUnitAlignment - 1) / kUnitAlignment * kUnitAlignment;
    elements += member.count;
  }
  total_ += elements;
  std::vector<Position> at{{0, 0}};
  for (int r = 1; r < owners_; ++r) {
    const auto before = owned_upto_[static_cast<std::size_t>(r)];
    const std::int64_t wanted = total_ * r / owners_ - before;
    const std::int64_t least = elements_before(unit, at.back());
    at.push_back(nearest_cut(unit, std::clamp(wanted, least, elements)));
    if (elements_before(unit, at.back()) < least) at.back() = at[at.size() - 2];
  }
  at.push_back({unit.members.size(), 0});
  for (std::size_t r = 0; r < at.size(); ++r) {
    owned_upto_[r] += elements_before(unit, at[r]);
    unit.cuts.push_back(byte_of(unit, at[r]));
  }
  for (std::size_t r = 0; r + 1 < at.size(); ++r) {
    for (std::size_t i = at[r].member; i < unit.members.size() && i <= at[r + 1].member; ++i) {
      const Unit::Member& member = unit.members[i];
      const std::int64_t begin = i == at[r].member ? at[r].element : 0;
      const std::int64_t end = i == at[r + 1].member ? at[r + 1].element : member.count;
      if (end > begin) pieces_[r].push_back({member.parameter, begin, end});
    }
  }
  for (const Unit::Member& member : unit.members)
    if (member.count == 0) pieces_[0].push_back({member.parameter, 0, 0});
  units_.push_back(std::move(unit));
  return static_cast<std::uint32_t>(units_.size() - 1);
}

}  // namespace trireme::inline v0::parallel
