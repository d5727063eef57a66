#include "trireme/show/collective/tree_sum.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/comm/calls/run_event.h"
#include "trireme/comm/simulate.h"
#include "trireme/kernel/leaf_sum.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::show {
namespace {

using comm::RunEvent;
using kernel::LeafRange;

constexpr std::size_t kCount = 32;  // more than a message header holds
constexpr int kMostTreeRanks = 16;
constexpr std::uint32_t kMostLeaves = 32;
using Leaf = std::vector<float>;

Leaf leaf_of(std::uint32_t number) { return Leaf(kCount, 1 / static_cast<float>(number + 3)); }

// One rank: adds its own leaves, then all-reduces. `told` gets the nodes in order of addition.
float add_on(comm::SimulatedRank& rank, std::uint32_t total, std::vector<LeafRange>& told) {
  const LeafRange share = kernel::contiguous_share(total, rank.size, rank.rank);
  std::map<LeafRange, Leaf> held;
  std::vector<LeafRange> nodes;
  for (std::uint32_t i = share.first; i < share.end(); ++i) {
    nodes.push_back({i, 1});
    held[nodes.back()] = leaf_of(i);
  }
  for (const auto& [left, right] : kernel::merges(nodes, total)) {
    const LeafRange sum{left.first, left.count + right.count};
    Leaf both = held.at(left);
    kernel::add_into(both.data(), held.at(right).data(), DType::F32, kCount);
    held[sum] = both;
    told.push_back(sum);
  }
  std::vector<comm::Term> terms;
  for (const LeafRange node : nodes)
    terms.push_back({Buffer::of(std::span(held.at(node))), node.first, node.count});
  Leaf out(kCount);
  rank.world->all_reduce(terms, total, Buffer::of(std::span(out)), {.algorithm = "tree"}).wait();
  return out[0];
}

float sum_in_rank_order(const TreeSum& sum) {
  float all = 0;
  for (const LeafRange share : sum.share) {
    float own = 0;
    for (std::uint32_t i = share.first; i < share.end(); ++i) own += leaf_of(i)[0];
    all += own;
  }
  return all;
}

// Merges the ranks' records: each rank's order stays, and every node comes after its children.
std::vector<TreeAddition> in_order(const std::vector<std::vector<LeafRange>>& told) {
  std::map<LeafRange, int> step_of;  // without leaves, which exist from the beginning
  std::vector<TreeAddition> additions;
  std::vector<std::size_t> next(told.size(), 0);
  std::vector<int> last(told.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < told.size(); ++rank) {
      while (next[rank] < told[rank].size()) {
        const LeafRange node = told[rank][next[rank]];
        int step = last[rank];
        bool ready = true;
        for (const LeafRange child : {left_of(node), right_of(node)}) {
          const auto found = step_of.find(child);
          if (found != step_of.end()) step = std::max(step, found->second);
          ready = ready && (child.count == 1 || found != step_of.end());
        }
        if (!ready) break;
        last[rank] = step_of[node] = step + 1;
        additions.push_back({node, static_cast<int>(rank), step + 1});
        ++next[rank];
        moved = true;
      }
    }
  }
  std::sort(additions.begin(), additions.end(), [](const TreeAddition& a, const TreeAddition& b) {
    return std::pair(a.step, a.node) < std::pair(b.step, b.node);
  });
  return additions;
}

std::string bits_text(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  char text[48];
  std::snprintf(text, sizeof text, "%.9g (0x%08x)", static_cast<double>(value), bits);
  return text;
}

std::string shares_text(const TreeSum& sum) {
  std::string text = counted(sum.ranks, "rank") + ":";
  for (int rank = 0; rank < sum.ranks; ++rank) {
    const LeafRange share = sum.share[static_cast<std::size_t>(rank)];
    text +=
        (rank > 0 ? ", rank " : " rank ") + std::to_string(rank) + " has " +
        (share.count == 0 ? "no leaf" : (share.count == 1 ? "leaf " : "leaves ") + text_of(share));
  }
  return text;
}

}  // namespace

int TreeSum::steps() const { return additions.empty() ? 0 : additions.back().step; }

int TreeSum::rank_of(LeafRange node) const {
  for (const TreeAddition& one : additions)
    if (one.node == node) return one.rank;
  int rank = 0;
  while (node.first >= share[static_cast<std::size_t>(rank)].end()) ++rank;
  return rank;
}

TreeSum record_tree_sum(int ranks, std::uint32_t leaves) {
  require(ranks >= 1 && ranks <= kMostTreeRanks,
          std::to_string(ranks) + " ranks cannot be shown adding in a tree",
          "Give 1 to " + std::to_string(kMostTreeRanks) + ".");
  require(leaves >= 2 && leaves <= kMostLeaves,
          "a tree of " + std::to_string(leaves) + " leaves cannot be shown",
          "Give 2 to " + std::to_string(kMostLeaves) + ".");
  TreeSum result{.ranks = ranks, .leaves = leaves};
  for (int rank = 0; rank < ranks; ++rank)
    result.share.push_back(kernel::contiguous_share(leaves, ranks, rank));
  std::vector<std::vector<LeafRange>> told(static_cast<std::size_t>(ranks));
  std::vector<float> sums(told.size());
  comm::SimulationOptions simulation;
  simulation.prepare = [&](comm::SimulatedRank& rank, comm::CommunicatorOptions& world) {
    world.on_run = [&list = told[static_cast<std::size_t>(rank.rank)]](const RunEvent& event) {
      if (event.kind == RunEvent::Kind::Add) list.push_back(event.node);
    };
  };
  comm::simulate(ranks, simulation, [&](comm::SimulatedRank& rank) {
    const auto own = static_cast<std::size_t>(rank.rank);
    sums[own] = add_on(rank, leaves, told[own]);
  });
  result.additions = in_order(told);
  result.sum = sums[0];
  result.in_rank_order = sum_in_rank_order(result);
  return result;
}

LeafRange left_of(LeafRange node) { return {node.first, node.count / 2}; }
LeafRange right_of(LeafRange node) {
  return {node.first + node.count / 2, node.count - node.count / 2};
}

std::string text_of(LeafRange node) {
  const std::string first = std::to_string(node.first);
  return node.count == 1 ? first : first + "-" + std::to_string(node.end() - 1);
}

std::string step_text(const TreeSum& sum, int step) {
  std::string text;
  for (const TreeAddition& one : sum.additions) {
    if (one.step != step) continue;
    const auto part = [&](LeafRange node) {
      const int from = sum.rank_of(node);
      return text_of(node) + (from == one.rank ? "" : " (from rank " + std::to_string(from) + ")");
    };
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(one.rank) + ": " +
            part(left_of(one.node)) + " + " + part(right_of(one.node));
  }
  return text;
}

std::string sum_text(const TreeSum& sum) {
  return bits_text(sum.sum) + "; from left to right, rank by rank, it would be " +
         bits_text(sum.in_rank_order);
}

std::string name_of(const std::vector<TreeSum>& sums) {
  std::vector<int> ranks;
  for (const TreeSum& sum : sums) ranks.push_back(sum.ranks);
  return "tree sum of " + std::to_string(sums.front().leaves) + " leaves on " + listed(ranks) +
         (sums.size() == 1 && sums.front().ranks == 1 ? " rank" : " ranks");
}

std::string text_of(const std::vector<TreeSum>& sums) {
  std::string text = name_of(sums) +
                     "\nonly siblings of one tree are added, whoever adds them; leaf k is "
                     "1 / (k + 3)\n";
  for (const TreeSum& sum : sums) {
    text += "\n" + shares_text(sum) + "\n";
    for (int step = 1; step <= sum.steps(); ++step)
      text += "  step " + std::to_string(step) + "  " + step_text(sum, step) + "\n";
    text += "  sum     " + sum_text(sum) + "\n";
  }
  return text;
}

std::string json_of(const std::vector<TreeSum>& sums) {
  std::string text;
  for (const TreeSum& sum : sums) {
    auto additions = nlohmann::ordered_json::array();
    for (const TreeAddition& one : sum.additions)
      additions.push_back({{"step", one.step},
                           {"rank", one.rank},
                           {"first", one.node.first},
                           {"count", one.node.count}});
    text += json_line({{"event", "tree_sum"},
                       {"ranks", sum.ranks},
                       {"leaves", sum.leaves},
                       {"additions", std::move(additions)},
                       {"sum", sum.sum},
                       {"in_rank_order", sum.in_rank_order}});
  }
  return text;
}

}  // namespace trireme::inline v0::show
