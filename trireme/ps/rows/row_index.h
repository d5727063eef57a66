// RowIndex: a map from row ids to positions. Open addressing with linear probing in memory of a
// power of two; at most three quarters are full. It has no iteration, so no result can depend on
// the order of ids in memory. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/base/mixed.h"

namespace trireme::inline v0::ps {

class RowIndex {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  RowIndex() { clear(); }
  std::size_t size() const noexcept { return size_; }
  /// Starts to load what find() and insert() of `id` will read. Many lookups that are prefetched
  /// together wait for memory once.
  void prefetch(std::int64_t id) const noexcept { __builtin_prefetch(&places_[home(id)], 1); }
  /// kNone: it is not there.
  std::uint32_t find(std::int64_t id) const noexcept {
    for (std::size_t at = home(id);; at = (at + 1) & mask_) {
      if (places_[at].position == kNone) return kNone;
      if (places_[at].id == id) return places_[at].position;
    }
  }
  /// Returns the id's position; an id that was not there gets `position`.
  std::uint32_t insert(std::int64_t id, std::uint32_t position) {
    if (4 * (size_ + 1) > 3 * places_.size()) grow(2 * places_.size());
    for (std::size_t at = home(id);; at = (at + 1) & mask_) {
      if (places_[at].position == kNone) {
        places_[at] = {id, position};
        ++size_;
        return position;
      }
      if (places_[at].id == id) return places_[at].position;
    }
  }
  /// No effect if it is not there.
  void erase(std::int64_t id) noexcept;
  /// Room for `count` ids without growing.
  void reserve(std::size_t count);
  /// Keeps the memory, unless the set had far fewer ids than it has room for.
  void clear();

 private:
  struct Entry {
    std::int64_t id = 0;
    std::uint32_t position = kNone;
  };
  std::size_t home(std::int64_t id) const noexcept {
    return static_cast<std::size_t>(mixed(static_cast<std::uint64_t>(id)) >> shift_);
  }
  void resize(std::size_t places);
  void grow(std::size_t places);

  std::vector<Entry> places_;
  std::size_t size_ = 0, mask_ = 0;
  int shift_ = 0;
};

}  // namespace trireme::inline v0::ps
