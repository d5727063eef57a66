// ByChunk: a map from some chunks of a program to values. An all_to_all on n ranks has n^2 chunks,
// but each rank deals with 2n of them, so a rank must not keep something for every chunk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace trireme::inline v0::comm {

template <class Value>
class ByChunk {
 public:
  struct Entry {
    int chunk;
    Value value;
  };

  /// Adds an empty value if the chunk has none. May move the other values.
  Value& operator[](int chunk) {
    auto at = position(*this, chunk);
    if (at == entries_.end() || at->chunk != chunk) at = entries_.insert(at, {chunk, {}});
    return at->value;
  }
  /// The chunk's value; an empty one if it has none.
  const Value& at(int chunk) const {
    static const Value empty{};
    const auto at = position(*this, chunk);
    return at == entries_.end() || at->chunk != chunk ? empty : at->value;
  }
  std::size_t size() const noexcept { return entries_.size(); }
  // Ascending.
  auto begin() const noexcept { return entries_.begin(); }
  auto end() const noexcept { return entries_.end(); }

 private:
  static auto position(auto& self, int chunk) {
    return std::ranges::lower_bound(self.entries_, chunk, {}, &Entry::chunk);
  }
  std::vector<Entry> entries_;
};

}  // namespace trireme::inline v0::comm
