// ChunkSum: a vector that every 4,096-element chunk of one parameter contributes to, added in one
// order however the chunks are spread over ranks: the tree T of NUMERICS.md over chunk numbers.
//
// LAMB's norms, Adafactor's row and column sums. A rank adds what it owns; SharedSums adds the
// nodes of several ranks. Leaves are zero outside an interval, so a node keeps its interval only:
// rows and columns of a large embedding cost no more than their own elements. No leaf is negative
// (squares), so that adding a zero changes no bit. Not thread safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/kernel/tree_sum.h"

namespace trireme {
inline namespace v0 {
namespace optim {

class ChunkSum {
 public:
  /// The values [first, first + values.size()) of a vector that is zero elsewhere.
  struct Node {
    kernel::LeafRange chunks;
    std::size_t first = 0;
    std::vector<double> values;
  };

  /// Over parameter number `parameter`, which has `num_chunks` chunks; a vector of `width` numbers.
  ChunkSum(std::uint32_t parameter, std::uint32_t num_chunks, std::size_t width)
      : parameter_(parameter), num_chunks_(num_chunks), width_(width) {}
  /// The leaf of `chunk`, higher than any before.
  void add(std::uint32_t chunk, std::size_t first, std::span<const double> values) {
    add(Node{{chunk, 1}, first, {values.begin(), values.end()}});
  }
  /// A node of the tree, after any before.
  void add(Node node);

  std::uint32_t parameter() const noexcept { return parameter_; }
  std::uint32_t num_chunks() const noexcept { return num_chunks_; }
  std::size_t width() const noexcept { return width_; }
  /// The maximal nodes of what was added, ascending; none after complete().
  const std::vector<Node>& nodes() const noexcept { return nodes_; }
  /// Every chunk was added here.
  bool is_whole() const noexcept;
  /// What several ranks' nodes came to.
  void complete(std::vector<double> total);
  /// The sum over all chunks, `width` numbers. Fails (TRIREME_CHECK) where chunks are missing.
  const std::vector<double>& total();

 private:
  std::uint32_t parameter_, num_chunks_;
  std::size_t width_;
  std::vector<Node> nodes_;
  std::vector<double> total_;
};

/// Completes the sums of parameters whose chunks several ranks own.
class SharedSums {
 public:
  virtual ~SharedSums() = default;
  /// Collective: every rank gives a sum for each parameter of the model that the optimizer needs
  /// one of, in the same order, with the nodes it has (none where it owns no part).
  virtual void complete(std::span<ChunkSum> sums) = 0;
};

}  // namespace optim
}  // namespace v0
}  // namespace trireme
