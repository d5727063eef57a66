#include "trireme/ps/rows/row_index.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace trireme::inline v0::ps {
namespace {

constexpr std::size_t kFewestPlaces = 64;

}  // namespace

void RowIndex::resize(std::size_t places) {
  places_.assign(places, Entry{});
  mask_ = places - 1;
  shift_ = 64 - std::countr_zero(places);
  size_ = 0;
}

void RowIndex::clear() {
  const std::size_t enough = std::bit_ceil(std::max(kFewestPlaces, 2 * size_));
  if (places_.empty() || places_.size() > 4 * enough) return resize(enough);
  std::fill(places_.begin(), places_.end(), Entry{});
  size_ = 0;
}

void RowIndex::reserve(std::size_t count) {
  const std::size_t enough = std::bit_ceil(std::max(kFewestPlaces, count + count / 2));
  if (enough > places_.size()) grow(enough);
}

void RowIndex::grow(std::size_t places) {
  const std::vector<Entry> before = std::exchange(places_, {});
  resize(places);
  for (const Entry& place : before)
    if (place.position != kNone) insert(place.id, place.position);
}

// Moves later ids up, so that no search ends at the gap.
void RowIndex::erase(std::int64_t id) noexcept {
  std::size_t gap = home(id);
  while (places_[gap].position != kNone && places_[gap].id != id) gap = (gap + 1) & mask_;
  if (places_[gap].position == kNone) return;
  for (std::size_t at = (gap + 1) & mask_; places_[at].position != kNone; at = (at + 1) & mask_) {
    const std::size_t wanted = home(places_[at].id);
    if (((at - wanted) & mask_) < ((at - gap) & mask_)) continue;  // it is behind its home already
    places_[gap] = places_[at];
    gap = at;
  }
  places_[gap] = {};
  --size_;
}

}  // namespace trireme::inline v0::ps
