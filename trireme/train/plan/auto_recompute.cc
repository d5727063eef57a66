#include "trireme/train/plan/auto_recompute.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/words.h"
#include "trireme/memory/recompute.h"
#include "trireme/plan/memory_choice.h"

namespace trireme::inline v0::train {
namespace {

using memory::Recompute;
using Activations = std::vector<models::BlockActivations>;

constexpr std::array kKinds = {Recompute::None, Recompute::Selective, Recompute::Full};

// For the last block, Full costs the same as None.
std::vector<std::vector<plan::MemoryOption>> options_of(const Activations& blocks) {
  std::vector<std::vector<plan::MemoryOption>> all;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const bool last = i + 1 == blocks.size();
    auto& options = all.emplace_back();
    for (const Recompute kind : kKinds) {
      const memory::BlockCost cost = memory::cost_of(
          blocks[i], last && kind == Recompute::Full ? Recompute::None : kind, last);
      options.push_back({.stays = cost.stays, .once = cost.once, .cost = cost.again});
    }
  }
  return all;
}

// Call if `too_small` bytes are not enough: finds the choice with the fewest bytes by bisection.
plan::MemoryChoice smallest(std::span<const std::vector<plan::MemoryOption>> blocks,
                            std::int64_t too_small) {
  std::int64_t fits = std::max<std::int64_t>(too_small, 0) + 1;
  auto choice = plan::cheapest_within(blocks, fits);
  for (; !choice; choice = plan::cheapest_within(blocks, fits)) {
    too_small = fits;
    fits *= 2;
  }
  while (fits - too_small > 1) {
    const std::int64_t middle = too_small + (fits - too_small) / 2;
    auto one = plan::cheapest_within(blocks, middle);
    (one ? fits : too_small) = middle;
    if (one) choice = std::move(one);
  }
  return *choice;
}

std::string percent(double part, double whole) {
  return part > 0 && whole > 0 ? formatted("%.1f %%", 100 * part / whole) : "-";
}

std::string row(const std::array<std::string, 5>& cells) {
  char text[192];
  std::snprintf(text, sizeof text, "    %-24s %-10s %11s %11s %10s\n", cells[0].c_str(),
                cells[1].c_str(), cells[2].c_str(), cells[3].c_str(), cells[4].c_str());
  return text;
}

std::string table_of(const Activations& blocks, const std::vector<std::string>& names,
                     const std::vector<Recompute>& kinds, std::int64_t room) {
  double forward = 0;
  for (const models::BlockActivations& block : blocks) forward += block.forward_work;
  const memory::RecomputePolicy policy{.of_block = kinds};
  std::string table = "  memory.recompute = \"auto\": the least time with at most " +
                      bytes_text(std::max<std::int64_t>(room, 0)) +
                      " of activations a micro-batch\n" +
                      row({"blocks", "again", "keep", "of", "more time"});
  const auto same = [&](std::size_t a, std::size_t b) {
    return kinds[a] == kinds[b] && blocks[a].kept == blocks[b].kept &&
           blocks[a].inputs == blocks[b].inputs;
  };
  for (std::size_t begin = 0, end = 0; begin < blocks.size(); begin = end) {
    std::int64_t keeps = 0, all = 0;
    double again = 0;
    for (; end < blocks.size() && same(begin, end); ++end) {
      const bool last = end + 1 == blocks.size();
      const memory::BlockCost cost =
          memory::cost_of(blocks[end], policy.of(end, blocks.size()), last);
      keeps += last ? cost.once : cost.stays;
      all += blocks[end].kept;
      again += cost.again;
    }
    const std::string name =
        end - begin == 1 ? names[begin] : names[begin] + " ... " + names[end - 1];
    table += row({name, memory::name_of(kinds[begin]), bytes_text(keeps), bytes_text(all),
                  percent(again, 3 * forward)});
  }
  const memory::ActivationCosts costs = memory::costs_of(blocks, policy);
  return table +
         row({"at most at a time", "", bytes_text(costs.peak),
              bytes_text(memory::costs_of(blocks, {}).peak), percent(costs.share_again, 1)});
}

}  // namespace

AutoRecompute choose_recompute(const Activations& blocks, const std::vector<std::string>& names,
                               std::int64_t room) {
  TRIREME_CHECK(blocks.size() == names.size());
  const auto options = options_of(blocks);
  auto choice = plan::cheapest_within(options, room);
  if (!choice) choice = smallest(options, room);
  std::vector<Recompute> kinds;
  for (const std::size_t option : choice->option) kinds.push_back(kKinds[option]);
  const bool all_fits = std::count(kinds.begin(), kinds.end(), Recompute::None) ==
                        static_cast<std::ptrdiff_t>(kinds.size());
  return {.policy = all_fits ? "none" : memory::to_text(kinds),
          .table = table_of(blocks, names, kinds, room)};
}

}  // namespace trireme::inline v0::train
