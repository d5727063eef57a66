// ChunkSum: a vector to which every 4,096-element chunk of one parameter contributes. It is added
// along the tree of docs/numerics.md over chunk numbers, so the order does not depend on how chunks
// are spread over ranks.
//
// Used for LAMB's norms and Adafactor's row and column sums. A rank adds what it owns; SharedSums
// adds the nodes of several ranks. A leaf is zero outside an interval and a node stores its
// interval only, so rows and columns of a large embedding cost only their own elements. Leaves are
// not negative (squares), so adding a zero changes no bit. Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "trireme/kernel/tree_sum.h"

namespace trireme::inline v0::optim {

class ChunkSum {
 public:
  /// The values [first, first + values.size()) of a vector that is zero elsewhere.
  struct Node {
    kernel::LeafRange chunks;
    std::size_t first = 0;
    std::vector<double> values;
  };

  /// For parameter number `parameter`, which has `num_chunks` chunks; a vector of `width` numbers.
  ChunkSum(std::uint32_t parameter, std::uint32_t num_chunks, std::size_t width)
      : parameter_(parameter), num_chunks_(num_chunks), width_(width) {}
  /// Adds the leaf of `chunk`. Chunks must come in ascending order.
  void add(std::uint32_t chunk, std::size_t first, std::span<const double> values) {
    add(Node{{chunk, 1}, first, {values.begin(), values.end()}});
  }
  /// Adds a node of the tree. Nodes must come in ascending order.
  void add(Node node);

  std::uint32_t parameter() const noexcept { return parameter_; }
  std::uint32_t num_chunks() const noexcept { return num_chunks_; }
  std::size_t width() const noexcept { return width_; }
  /// The maximal nodes of what was added, ascending; empty after complete().
  const std::vector<Node>& nodes() const noexcept { return nodes_; }
  /// Whether every chunk was added on this rank.
  bool is_whole() const noexcept;
  /// Sets the sum that the nodes of several ranks add up to.
  void complete(std::vector<double> total);
  /// The sum over all chunks, `width` numbers. CheckFailure if chunks are missing.
  const std::vector<double>& total();

 private:
  std::uint32_t parameter_, num_chunks_;
  std::size_t width_;
  std::vector<Node> nodes_;
  std::vector<double> total_;
};

/// DeviceSums: numbers that devices compute for ChunkSums. All of a step reach the host by one copy, for
/// which the host waits once. Not thread safe.
class DeviceSums {
 public:
  using Take = std::function<void(std::span<const double>)>;
  /// `numbers`: fp64, of any shape; deliver() hands them to `take` in row-major order.
  void add(at::Tensor numbers, Take take) {
    numbers_.push_back(std::move(numbers));
    takers_.push_back(std::move(take));
  }
  /// `numbers`: [chunks, n], of the chunks from `first` on. Chunk k gives elements kn ... kn + n-1 of
  /// the sum, which must live until deliver().
  void add_chunks(ChunkSum& sum, std::uint32_t first, at::Tensor numbers);
  /// Waits for the device; calls take() in the order of add().
  void deliver();

 private:
  std::vector<at::Tensor> numbers_;
  std::vector<Take> takers_;
};

/// Completes the sums of parameters whose chunks several ranks own.
class SharedSums {
 public:
  virtual ~SharedSums() = default;
  /// Collective: every rank gives one sum for each parameter of which the optimizer needs a sum, in
  /// the same order, with the nodes it has (none if it owns no slice).
  virtual void complete(std::span<ChunkSum> sums) = 0;
};

}  // namespace trireme::inline v0::optim
