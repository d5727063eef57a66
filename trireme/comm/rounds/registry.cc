#include "trireme/comm/rounds/registry.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/comm/operation.h"
#include "trireme/comm/rounds/algorithms/algorithms.h"

namespace trireme::inline v0 {
namespace comm {
namespace {

struct Registry {
  std::mutex mutex;
  std::deque<AlgorithmEntry> entries;  // a deque: addresses stay valid
  const std::size_t shipped = entries.size();
};

// Made on first use, since programs may register in static initialisers.
Registry& registry() {
  static Registry* const made = new Registry{
      {},
      {
          {OpKind::AllReduce, "naive", "everyone sends everything to everyone; one round", naive},
          {OpKind::AllReduce, "ring",
           "reduce-scatter and all-gather around a ring; 2(n-1) rounds (Patarasuk and Yuan 2009)",
           ring},
          {OpKind::AllReduce, "all_pairs",
           "everyone's slice r to rank r, which adds, and back to everyone; 2 rounds", all_pairs},
          {OpKind::AllReduce, "central", "to one root, which adds, and back; 2 rounds", central},
          {OpKind::AllReduce, "tree",
           "up the tree of the sum and down again; 2 ceil(log2 n) rounds", tree},
          {OpKind::AllReduce, "double_tree",
           "two binary trees, half of the buffer each, pipelined (Sanders, Speck, Traeff 2009)",
           double_tree},
          {OpKind::AllReduce, "halving_doubling",
           "exchanges at distance 1, 2, 4, ... and back; 2 log2 n rounds (Rabenseifner 2004)",
           halving_doubling},
          {OpKind::AllReduce, "hierarchical", "within hosts, across hosts by slices, and back",
           hierarchical},
          {OpKind::Broadcast, "binomial", "those who have it send it on; ceil(log2 n) rounds",
           binomial_broadcast},
          {OpKind::Broadcast, "chain", "piece by piece from rank to rank; n-2+pieces rounds",
           chain_broadcast},
          {OpKind::AllGather, "pairwise", "rank r sends its piece to r+1, r+2, ...; n-1 rounds",
           pairwise_all_gather},
          {OpKind::ReduceScatter, "pairwise", "everyone's piece r to rank r; n-1 rounds",
           pairwise_reduce_scatter},
          {OpKind::Reduce, "tree", "up the tree of the sum; ceil(log2 n) rounds", tree_reduce},
          {OpKind::Reduce, "pairwise",
           "pairwise reduce-scatter, then the sums to the root; n rounds", pairwise_reduce},
          {OpKind::Gather, "central", "everyone sends its piece to the root; one round",
           central_gather},
          {OpKind::Scatter, "central", "the root sends everyone its piece; one round",
           central_scatter},
          {OpKind::AllToAll, "pairwise",
           "to r+1 and from r-1, to r+2 and from r-2, ...; n-1 rounds", pairwise_all_to_all},
          {OpKind::AllToAll, "naive", "everything at once; one round", naive_all_to_all},
      }};
  return *made;
}

const AlgorithmEntry* find(const Registry& all, OpKind kind, std::string_view name) {
  for (const AlgorithmEntry& entry : all.entries) {
    if (entry.kind == kind && entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace

const AlgorithmEntry& register_algorithm(AlgorithmEntry entry) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("cannot register algorithm \"" + entry.name + "\" for " +
                          std::string(name_of(entry.kind)) + ": " + why,
                      {.operation = "register_algorithm", .advice = "Choose another name."});
  };
  if (entry.name.empty() || entry.name.size() > sizeof Header::algorithm) {
    refuse("a name has 1 to " + std::to_string(sizeof Header::algorithm) + " characters");
  }
  if (entry.name == "auto" || entry.name == "direct") refuse("the name has a meaning of its own");
  if (find(all, entry.kind, entry.name)) refuse("there is one of that name");
  return all.entries.emplace_back(std::move(entry));
}

const AlgorithmEntry* find_algorithm(OpKind kind, std::string_view name) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  return find(all, kind, name);
}

std::vector<const AlgorithmEntry*> algorithms_of(OpKind kind) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  std::vector<const AlgorithmEntry*> found;
  for (const AlgorithmEntry& entry : all.entries) {
    if (entry.kind == kind) found.push_back(&entry);
  }
  return found;
}

bool ships(const AlgorithmEntry& entry) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  const auto end = all.entries.begin() + static_cast<std::ptrdiff_t>(all.shipped);
  return std::any_of(all.entries.begin(), end, [&](const auto& one) { return &one == &entry; });
}

Layout layout_of(OpKind kind, int size, std::uint32_t total, int root) {
  switch (kind) {
    case OpKind::AllReduce:
      return all_reduce_layout(size, total);
    case OpKind::Broadcast:
      return broadcast_layout(root);
    case OpKind::AllGather:
      return all_gather_layout();
    case OpKind::ReduceScatter:
      return reduce_scatter_layout(size);
    case OpKind::Reduce:
      return reduce_layout(size, total, root);
    case OpKind::Gather:
      return gather_layout(root);
    case OpKind::Scatter:
      return scatter_layout(root);
    case OpKind::AllToAll:
      return all_to_all_layout(size);
    default:
      break;
  }
  throw ConfigError(std::string(name_of(kind)) + " is not made of rounds of messages",
                    {.operation = std::string(name_of(kind)), .advice = "Name a collective."});
}

}  // namespace comm

const comm::AlgorithmEntry& register_all_reduce(std::string name, comm::Generator generator,
                                                std::string about) {
  return comm::register_algorithm(
      {comm::OpKind::AllReduce, std::move(name), std::move(about), std::move(generator)});
}

}  // namespace trireme::inline v0
