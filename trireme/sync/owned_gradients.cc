#include "trireme/sync/owned_gradients.h"

#include <algorithm>

#include "trireme/kernel/elementwise.h"
#include "trireme/kernel/leaf_sum.h"
#include "trireme/optim/optimizer.h"

namespace trireme::inline v0::parallel {
namespace {

std::size_t num_chunks(const Piece& piece) {
  return (static_cast<std::size_t>(piece.size()) + kernel::kNormChunk - 1) / kernel::kNormChunk;
}

}  // namespace

std::vector<double> squares_of(std::span<const optim::OwnedSlice> slices) {
  std::vector<double> squares;
  for (const optim::OwnedSlice& slice : slices) optim::chunk_squares(slice, squares);
  return squares;
}

std::int64_t first_not_finite(std::span<const optim::OwnedSlice> slices) {
  for (const optim::OwnedSlice& slice : slices) {
    const auto count = static_cast<std::size_t>(slice.size());
    if (!kernel::all_finite(slice.gradient, slice.master_dtype, count)) return slice.parameter;
  }
  return -1;
}

std::vector<double> gather_squares(comm::Communicator& owners,
                                   std::span<const optim::OwnedSlice> owned,
                                   std::span<const std::vector<Piece>> pieces_of) {
  std::vector<std::size_t> counts;
  std::size_t total = 0;
  for (const auto& pieces : pieces_of) {
    counts.push_back(0);
    for (const Piece& piece : pieces) counts.back() += num_chunks(piece);
    total += counts.back();
  }
  std::vector<double> mine = squares_of(owned), all(total);
  owners
      .all_gather_v(Buffer::of(std::span(mine)), Buffer::of(std::span(all)), counts,
                    {.label = "gradient norm"})
      .wait();
  // An owner's squares are sorted by parameter, and within a parameter owners are in order.
  struct Source {
    std::uint32_t parameter;
    const double* begin;
    std::size_t count;
  };
  std::vector<Source> sources;
  const double* at = all.data();
  for (const auto& pieces : pieces_of) {
    std::vector<Piece> sorted = pieces;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Piece& a, const Piece& b) { return a.parameter < b.parameter; });
    for (const Piece& piece : sorted) {
      sources.push_back({piece.parameter, at, num_chunks(piece)});
      at += num_chunks(piece);
    }
  }
  std::stable_sort(sources.begin(), sources.end(),
                   [](const Source& a, const Source& b) { return a.parameter < b.parameter; });
  std::vector<double> squares;
  squares.reserve(total);
  for (const Source& source : sources)
    squares.insert(squares.end(), source.begin, source.begin + source.count);
  return squares;
}

}  // namespace trireme::inline v0::parallel
