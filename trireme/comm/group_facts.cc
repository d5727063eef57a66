#include "trireme/comm/group_facts.h"

#include <algorithm>
#include <utility>

#include "trireme/comm/choice/selection.h"

namespace trireme::inline v0::comm {
namespace {

// Numbers hosts in the order of their first appearance.
std::vector<int> numbered(const std::vector<std::string>& names) {
  std::vector<int> numbers;
  for (auto name = names.begin(); name != names.end(); ++name) {
    const auto first = std::find(names.begin(), name, *name);
    const int next = numbers.empty() ? 0 : *std::max_element(numbers.begin(), numbers.end()) + 1;
    numbers.push_back(first == name ? next : numbers[first - names.begin()]);
  }
  return numbers;
}

}  // namespace

GroupFacts::GroupFacts(int own, int num_ranks, bool is_head, CommunicatorOptions given)
    : rank(own),
      size(num_ranks),
      head(is_head),
      options(std::move(given)),
      hosts(numbered(options.host_of_rank)) {}

int GroupFacts::world_rank(int of) const noexcept {
  return options.world_ranks.empty() ? of : options.world_ranks[static_cast<std::size_t>(of)];
}

std::string GroupFacts::text() const { return head ? "" : " in group " + options.name; }

CommunicatorOptions GroupFacts::options_of(const std::vector<int>& ranks, std::string name) const {
  CommunicatorOptions theirs = options;
  theirs.name = std::move(name);
  theirs.algorithm = algorithm_of_groups(options.algorithm);
  theirs.host_of_rank.clear();
  theirs.world_ranks.clear();
  for (const int one : ranks) {
    theirs.world_ranks.push_back(world_rank(one));
    if (!options.host_of_rank.empty())
      theirs.host_of_rank.push_back(options.host_of_rank[static_cast<std::size_t>(one)]);
  }
  return theirs;
}

}  // namespace trireme::inline v0::comm
