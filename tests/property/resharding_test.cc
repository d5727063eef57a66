// Properties of who owns what: for any sizes and numbers of ranks, slices are disjoint and cover
// everything, so that m ranks read each element that n ranks wrote exactly once.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/property/draw.h"
#include "trireme/kernel/assignment.h"
#include "trireme/kernel/elementwise.h"
#include "trireme/sync/levels/ownership.h"

namespace trireme {
namespace {

using parallel::Ownership;
using parallel::Piece;
using parallel::Unit;

constexpr auto kChunk = static_cast<std::int64_t>(kernel::kNormChunk);

// Units, as the numbers of elements of their parameters: few, about a chunk, many.
using Counts = std::vector<std::vector<std::int64_t>>;
Counts draw_units() {
  const auto count = rc::gen::oneOf(in_range<std::int64_t>(0, 20),
                                    rc::gen::element(kChunk - 1, kChunk, kChunk + 1),
                                    in_range<std::int64_t>(0, 12 * kChunk));
  const auto unit = rc::gen::container<std::vector<std::int64_t>>(count);
  return *rc::gen::resize(8, rc::gen::container<Counts>(unit)).as("units");
}

// Parameters are numbered over all units, and differ in width.
Ownership draw_ownership(const Counts& units, const char* title) {
  Ownership ownership(*in_range(1, 20).as(title));
  std::uint32_t parameter = 0;
  for (const auto& unit : units) {
    std::vector<Unit::Member> members;
    for (const std::int64_t count : unit) {
      members.push_back({parameter, count, std::size_t{2} << parameter % 3});
      ++parameter;
    }
    ownership.add(members);
  }
  return ownership;
}

std::vector<std::int64_t> flat(const Counts& units) {
  std::vector<std::int64_t> all;
  for (const auto& unit : units) all.insert(all.end(), unit.begin(), unit.end());
  return all;
}

RC_GTEST_PROP(ReshardingProperty, AnyRanksReadOnceWhatAnyRanksWrote, ()) {
  const Counts units = draw_units();
  std::vector<std::vector<int>> zeros, written, read, ones;  // of each element of each parameter
  for (const std::int64_t count : flat(units)) {
    zeros.emplace_back(count, 0);
    ones.emplace_back(count, 1);
  }
  const auto visit = [](const Ownership& ownership, const auto& element) {
    for (const auto& pieces : ownership.pieces())
      for (const auto& [parameter, begin, end] : pieces)
        for (auto at = begin; at < end; ++at) element(parameter, static_cast<std::size_t>(at));
  };
  read = written = zeros;
  visit(draw_ownership(units, "writers"), [&](auto p, auto at) { ++written.at(p).at(at); });
  visit(draw_ownership(units, "readers"), [&](auto p, auto at) { read[p][at] += written[p][at]; });
  RC_ASSERT(read == ones);
}

RC_GTEST_PROP(ReshardingProperty, AnOwnerHasOneIntervalOfAParameterAndAnEvenShare, ()) {
  const Counts units = draw_units();
  const auto counts = flat(units);
  const Ownership ownership = draw_ownership(units, "owners");
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  std::vector<std::int64_t> next(counts.size(), 0);
  for (const auto& pieces : ownership.pieces()) {
    std::int64_t owned = 0;
    for (const Piece& piece : pieces) {
      const auto same = [&](const Piece& one) { return one.parameter == piece.parameter; };
      RC_ASSERT(std::count_if(pieces.begin(), pieces.end(), same) == 1);
      RC_ASSERT(piece.begin == std::exchange(next[piece.parameter], piece.end));  // ascending
      RC_ASSERT(piece.begin % kChunk == 0);
      RC_ASSERT(piece.size() > 0 || counts[piece.parameter] == 0);
      owned += piece.size();
    }
    // Cuts are at chunk ends: shares are even up to about one chunk, and never two.
    RC_ASSERT(std::abs(owned - total / ownership.owners()) <= 2 * kChunk);
  }
  RC_ASSERT(next == counts);
}

// One all_gather_v gathers a unit: an owner's bytes of it are its pieces, and padding.
RC_GTEST_PROP(ReshardingProperty, AnOwnersBytesOfAUnitHoldItsPieces, ()) {
  const Ownership ownership = draw_ownership(draw_units(), "owners");
  for (const Unit& unit : ownership.units()) {
    RC_ASSERT(std::ssize(unit.cuts) == ownership.owners() + 1);
    RC_ASSERT(unit.cuts.front() == 0u);
    RC_ASSERT(unit.cuts.back() == unit.bytes);
    RC_ASSERT(std::is_sorted(unit.cuts.begin(), unit.cuts.end()));
    std::size_t end = 0;
    for (const Unit::Member& member : unit.members) {
      const auto byte = [&](std::int64_t element) {
        return member.offset + static_cast<std::size_t>(element) * member.width;
      };
      RC_ASSERT(member.offset % 64 == 0u);
      RC_ASSERT(member.offset >= end);
      end = byte(member.count);
      RC_ASSERT(end <= unit.bytes);
      for (std::size_t r = 0; r < ownership.pieces().size(); ++r)
        for (const Piece& piece : ownership.pieces()[r]) {
          if (piece.parameter != member.parameter || piece.size() == 0) continue;
          RC_ASSERT(byte(piece.begin) >= unit.cuts[r]);
          RC_ASSERT(byte(piece.end) <= unit.cuts[r + 1]);
        }
    }
  }
}

RC_GTEST_PROP(ReshardingProperty, EveryLeafHasOnePlaceOfRanks, ()) {
  const kernel::Assignment assignment{*in_range(1, 9).as("groups"), *in_range(1, 9).as("members"),
                                      *in_range(1, 5).as("together")};
  const auto total = *in_range<std::uint32_t>(0, 100).as("total");
  std::vector<int> seen(total, 0);
  // Two pipeline ranks for each place.
  for (int rank = 0; rank < 2 * assignment.size() * assignment.together; ++rank)
    for (const std::uint32_t leaf : leaves_of(assignment, total, rank)) ++seen.at(leaf);
  RC_ASSERT(seen == std::vector<int>(total, 2 * assignment.together));
}

}  // namespace
}  // namespace trireme
