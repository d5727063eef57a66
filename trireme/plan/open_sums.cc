#include "trireme/plan/open_sums.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

namespace trireme::inline v0::plan {
namespace {

struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t middle() const noexcept { return begin + (end - begin) / 2; }
};

struct Open {
  int most = 0;  // at a time
  int left = 0;  // after the last leaf: the maximal nodes of the share in this node
};

Open open_in(Range node, Range share) {
  share = {std::max(node.begin, share.begin), std::min(node.end, share.end)};
  if (share.begin >= share.end) return {};
  if (share.begin == node.begin && share.end == node.end) {
    // The larger half comes second, on top of the sum of the first.
    const auto count = static_cast<std::uint64_t>(node.end - node.begin);
    return {std::max(1, static_cast<int>(std::bit_width(count - 1))), 1};
  }
  const Open first = open_in({node.begin, node.middle()}, share);
  const Open second = open_in({node.middle(), node.end}, share);
  return {std::max(first.most, first.left + second.most), first.left + second.left};
}

std::vector<Range> shares(std::int64_t total, std::span<const std::uint32_t> weights) {
  const auto sum = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  std::vector<Range> all;
  std::int64_t before = 0;
  const auto cut = [&](std::int64_t weight) {
    return static_cast<std::int64_t>(static_cast<__int128>(weight) * total / sum);
  };
  for (const std::uint32_t weight : weights) {
    all.push_back({cut(before), cut(before + weight)});
    before += weight;
  }
  return all;
}

}  // namespace

int open_sums(std::int64_t total, std::span<const std::uint32_t> weights) {
  int most = 1;
  for (const Range& share : shares(total, weights))
    most = std::max(most, open_in({0, total}, share).most);
  return most;
}

std::int64_t largest_share(std::int64_t total, std::span<const std::uint32_t> weights) {
  std::int64_t largest = 0;
  for (const Range& share : shares(total, weights))
    largest = std::max(largest, share.end - share.begin);
  return largest;
}

int open_sums(std::int64_t total, std::int64_t ranks) {
  // A power of two divides as the tree does: a share is a node, and the last one is the largest.
  if (std::has_single_bit(static_cast<std::uint64_t>(ranks))) {
    const Range largest{0, std::max<std::int64_t>((total + ranks - 1) / ranks, 1)};
    return open_in(largest, largest).most;
  }
  return open_sums(total, std::vector<std::uint32_t>(static_cast<std::size_t>(ranks), 1));
}

}  // namespace trireme::inline v0::plan
