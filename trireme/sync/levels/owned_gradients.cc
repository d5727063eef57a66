#include "trireme/sync/levels/owned_gradients.h"

#include <array>
#include <limits>
#include <map>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/kernel/elementwise.h"
#include "trireme/tensor/flat_math.h"

namespace trireme::inline v0::parallel {
namespace {

std::vector<tensor::FlatRange> gradients_of(std::span<const optim::OwnedSlice> slices) {
  std::vector<tensor::FlatRange> ranges;
  for (const optim::OwnedSlice& slice : slices)
    ranges.push_back({slice.gradient, slice.master_dtype, static_cast<std::size_t>(slice.size())});
  return ranges;
}

}  // namespace

std::vector<double> squares_of(std::span<const optim::OwnedSlice> slices) {
  if (slices.empty()) return {};
  return tensor::flat_math(slices.front().device).squares(gradients_of(slices));
}

std::int64_t first_not_finite(std::span<const optim::OwnedSlice> slices) {
  if (slices.empty()) return -1;
  const std::size_t found =
      tensor::flat_math(slices.front().device).first_not_finite(gradients_of(slices));
  return found < slices.size() ? slices[found].parameter : std::int64_t{-1};
}

std::int64_t first_of_all(comm::Communicator& group, std::int64_t own, std::string_view label) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::array<std::int64_t, 1> first{own < 0 ? kNone : own};
  group.all_reduce(Buffer::of(std::span<std::int64_t>(first)), ReduceOp::Min, {.label = label})
      .wait();
  return first[0] == kNone ? -1 : first[0];
}

std::size_t num_chunks(std::int64_t elements) {
  return (static_cast<std::size_t>(elements) + kernel::kNormChunk - 1) / kernel::kNormChunk;
}

std::vector<double> gather_squares(comm::Communicator& group, std::span<const double> own,
                                   std::span<const SquaresOf> order) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(group.size()));
  for (const SquaresOf& one : order) counts[static_cast<std::size_t>(one.rank)] += one.chunks;
  TRIREME_CHECK(own.size() == counts[static_cast<std::size_t>(group.rank())]);
  std::vector<std::size_t> next(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), next.begin(), std::size_t{0});
  std::vector<double> mine(own.begin(), own.end()), all(next.back() + counts.back()), squares;
  group
      .all_gather_v(Buffer::of(std::span(mine)), Buffer::of(std::span(all)), counts,
                    {.label = "gradient norm"})
      .wait();
  for (const SquaresOf& one : order) {
    const auto from =
        all.begin() + static_cast<std::ptrdiff_t>(next[static_cast<std::size_t>(one.rank)]);
    if (one.counted)
      squares.insert(squares.end(), from, from + static_cast<std::ptrdiff_t>(one.chunks));
    next[static_cast<std::size_t>(one.rank)] += one.chunks;
  }
  return squares;
}

// An owner's squares are sorted by parameter, and within a parameter owners are in order.
std::vector<double> gather_squares(comm::Communicator& owners,
                                   std::span<const optim::OwnedSlice> owned,
                                   std::span<const std::vector<Piece>> pieces_of) {
  std::map<std::pair<std::uint32_t, int>, std::size_t> chunks;  // by parameter and owner
  for (std::size_t owner = 0; owner < pieces_of.size(); ++owner)
    for (const Piece& piece : pieces_of[owner])
      chunks[{piece.parameter, static_cast<int>(owner)}] = num_chunks(piece.size());
  std::vector<SquaresOf> order;
  for (const auto& [of, count] : chunks) order.push_back({of.second, count});
  return gather_squares(owners, squares_of(owned), order);
}

}  // namespace trireme::inline v0::parallel
