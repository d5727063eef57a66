#include "trireme/plan/memory_choice.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace trireme::inline v0::plan {
namespace {

constexpr std::size_t kMostStates = 20'000;

// One choice for the blocks so far.
struct State {
  std::int64_t bytes = 0;  // sum of `stays`
  double cost = 0;
  std::size_t before = 0;  // index of the state for the blocks before
  std::size_t option = 0;  // option of the last block
};
using States = std::vector<State>;

bool comes_before(const State& a, const State& b) {
  return std::tie(a.bytes, a.cost, a.before) < std::tie(b.bytes, b.cost, b.before);
}

// The undominated ones of sorted states: bytes ascend and costs descend. If there are too many,
// keeps the one with the fewest bytes, which fits if any does, and the cheapest one per slice of
// bytes.
States undominated(const States& all, std::int64_t limit) {
  States kept;
  for (const State& state : all)
    if (kept.empty() || state.cost < kept.back().cost) kept.push_back(state);
  if (kept.size() <= kMostStates) return kept;
  const std::int64_t slice = limit / static_cast<std::int64_t>(kMostStates) + 1;
  States fewer;
  for (const State& state : kept) {
    if (fewer.size() > 1 && fewer.back().bytes / slice == state.bytes / slice) fewer.pop_back();
    fewer.push_back(state);
  }
  return fewer;
}

// The least cost if no block's `once` may exceed `most`.
std::optional<MemoryChoice> cheapest(std::span<const std::vector<MemoryOption>> blocks,
                                     std::int64_t limit, std::int64_t most) {
  std::vector<States> after = {{State{}}};
  for (const std::vector<MemoryOption>& options : blocks) {
    const States& states = after.back();
    States next;  // sorted: one option keeps the order of the states
    for (std::size_t i = 0; i < options.size(); ++i) {
      if (options[i].once > most) continue;
      const auto others = static_cast<std::ptrdiff_t>(next.size());
      for (std::size_t before = 0; before < states.size(); ++before) {
        const std::int64_t bytes = states[before].bytes + options[i].stays;
        if (bytes > limit - most) break;
        next.push_back({bytes, states[before].cost + options[i].cost, before, i});
      }
      std::inplace_merge(next.begin(), next.begin() + others, next.end(), comes_before);
    }
    if (next.empty()) return std::nullopt;
    after.push_back(undominated(next, limit));
  }
  MemoryChoice choice;
  std::size_t at = after.back().size() - 1;  // the cheapest of all
  choice.cost = after.back()[at].cost;
  std::int64_t once = 0;
  for (std::size_t block = blocks.size(); block > 0; --block) {
    const State& state = after[block][at];
    const MemoryOption& taken = blocks[block - 1][state.option];
    choice.option.push_back(state.option);
    choice.bytes += taken.stays;
    once = std::max(once, taken.once);
    at = state.before;
  }
  std::reverse(choice.option.begin(), choice.option.end());
  choice.bytes += once;
  return choice;
}

}  // namespace

std::optional<MemoryChoice> cheapest_within(std::span<const std::vector<MemoryOption>> blocks,
                                            std::int64_t limit) {
  std::set<std::int64_t> sizes = {0};
  for (const std::vector<MemoryOption>& options : blocks)
    for (const MemoryOption& option : options) sizes.insert(option.once);
  std::optional<MemoryChoice> best;
  for (const std::int64_t most : sizes) {
    if (most > limit) break;
    const std::optional<MemoryChoice> one = cheapest(blocks, limit, most);
    if (one &&
        (!best || one->cost < best->cost || (one->cost == best->cost && one->bytes < best->bytes)))
      best = one;
  }
  return best;
}

}  // namespace trireme::inline v0::plan
