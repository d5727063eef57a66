#include "trireme/comm/rounds/registry.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/comm/calls/operation.h"
#include "trireme/comm/choice/selection.h"
#include "trireme/comm/nccl/gpu_plan.h"

namespace trireme::inline v0 {
namespace comm {

#define TRIREME_ALGORITHM(name) AlgorithmEntry name##_entry();
#include "trireme/comm/rounds/algorithms/list.inc"
#undef TRIREME_ALGORITHM

namespace {

struct Registry {
  std::mutex mutex;
  std::deque<AlgorithmEntry> entries;  // a deque: addresses stay valid
  const std::size_t shipped = entries.size();
};

// Made on first use, since programs may register in static initialisers.
Registry& registry() {
  static Registry* const made = new Registry{{},
                                             {
#define TRIREME_ALGORITHM(name) name##_entry(),
#include "trireme/comm/rounds/algorithms/list.inc"
#undef TRIREME_ALGORITHM
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

}  // namespace comm

const comm::AlgorithmEntry* register_all_reduce(std::string name, comm::Generator generator,
                                                std::string about) {
  using namespace comm;
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("cannot register algorithm \"" + name + "\" for all_reduce: " + why,
                      {.operation = "register_all_reduce", .advice = "Choose another name."});
  };
  if (name.empty() || name.size() > sizeof Header::algorithm) {
    refuse("a name has 1 to " + std::to_string(sizeof Header::algorithm) + " characters");
  }
  constexpr std::string_view kReserved[] = {"auto", "direct", kMpiNative, nccl::kNative,
                                            nccl::kFixedTree};
  if (std::ranges::find(kReserved, name) != std::end(kReserved)) refuse("the name is reserved");
  if (find(all, OpKind::AllReduce, name)) refuse("an algorithm of this name exists");
  return &all.entries.emplace_back(
      AlgorithmEntry{OpKind::AllReduce, std::move(name), std::move(about), std::move(generator)});
}

}  // namespace trireme::inline v0
