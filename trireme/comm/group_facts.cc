#include "trireme/comm/group_facts.h"

#include <map>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/choice/selection.h"

namespace trireme::inline v0::comm {
namespace {

// Numbers hosts in the order of their first appearance.
std::vector<int> numbered(const std::vector<std::string>& names) {
  std::vector<int> numbers;
  std::map<std::string_view, int> known;
  for (const std::string& name : names) {
    const int next = static_cast<int>(known.size());
    numbers.push_back(known.try_emplace(name, next).first->second);
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

std::exception_ptr GroupFacts::peer_lost(int peer, const std::string& what,
                                         const std::string& before) const {
  return std::make_exception_ptr(
      PeerLost(before + "rank " + std::to_string(world_rank(peer)) + what,
               {.rank = world_rank(),
                .peer = world_rank(peer),
                .advice = "See that rank's own last lines; resume from the last checkpoint."}));
}

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
