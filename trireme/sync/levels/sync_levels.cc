// The values of parallel.sync. A new one is a class with a static plan() and a constructor that
// takes a SyncSetup, and a line here.
#include <algorithm>
#include <array>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/sync/levels/hybrid.h"
#include "trireme/sync/levels/zero1.h"
#include "trireme/sync/levels/zero2.h"
#include "trireme/sync/levels/zero3.h"
#include "trireme/sync/sync_setup.h"

namespace trireme::inline v0::parallel {
namespace {

struct Level {
  std::string_view name, title;
  SyncPlan (*plan)(const SyncRanks& ranks);
  std::unique_ptr<ParameterSync> (*make)(SyncSetup setup);
  bool local = false;   // ranks train separate copies (decentralised/)
  bool served = false;  // servers update the weights (ps/)
};

template <class Sync>
constexpr Level level(std::string_view name, std::string_view title = {}) {
  return {name, title, &Sync::plan, [](SyncSetup setup) -> std::unique_ptr<ParameterSync> {
            return std::make_unique<Sync>(std::move(setup));
          }};
}

constexpr Level local_level(std::string_view name) {
  Level result = level<PlainSync>(name);
  result.local = true;
  return result;
}

constexpr Level served_level(std::string_view name) {
  Level result = level<PlainSync>(name);
  result.served = true;
  return result;
}

constexpr std::array kLevels = {
    level<PlainSync>("plain"),
    level<Zero1>("zero1", "ZeRO-1"),
    level<Zero2>("zero2", "ZeRO-2"),
    level<Zero3>("zero3", "ZeRO-3"),
    level<Hybrid>("hybrid", "hybrid"),
    local_level("local_sgd"),
    local_level("diloco"),
    local_level("easgd"),
    local_level("gossip"),
    served_level("server"),
};

const Level* find_level(std::string_view name) {
  const auto found = std::find_if(kLevels.begin(), kLevels.end(),
                                  [name](const Level& one) { return one.name == name; });
  return found == kLevels.end() ? nullptr : &*found;
}

// "plain, zero1 ... or gossip"
std::string all_names() {
  std::string names(kLevels.front().name);
  for (std::size_t i = 1; i < kLevels.size(); ++i)
    names += (i + 1 < kLevels.size() ? ", " : " or ") + std::string(kLevels[i].name);
  return names;
}

}  // namespace

std::vector<std::string> sync_names() {
  std::vector<std::string> names;
  for (const Level& one : kLevels) names.emplace_back(one.name);
  return names;
}

bool is_local(const std::string& sync) {
  const Level* found = find_level(sync);
  return found != nullptr && found->local;
}

bool is_served(const std::string& sync) {
  const Level* found = find_level(sync);
  return found != nullptr && found->served;
}

SyncPlan plan_sync(const std::string& sync, int size, int shard, int local_size) {
  const Level* found = find_level(sync);
  if (found == nullptr)
    refuse_sync("parallel.sync = \"" + sync + "\" is no way to synchronise",
                "Use " + all_names() + ".");
  if ((found->local || found->served) && shard > 1)
    refuse_sync("parallel.shard = " + std::to_string(shard) + " with parallel.sync = \"" + sync +
                    "\": every rank has a copy of its own",
                "Leave parallel.shard out.");
  SyncPlan plan = found->plan({sync, size, shard, local_size});
  plan.sync = sync;
  plan.title = found->title;
  plan.local = found->local;
  plan.served = found->served;
  return plan;
}

std::unique_ptr<ParameterSync> make_parameter_sync(SyncSetup setup) {
  // One owner: nothing is sharded.
  const Level* found = find_level(setup.plan.sharded() ? setup.plan.sync : "plain");
  return found->make(std::move(setup));
}

ShardGroups make_shard_groups(comm::Communicator& world, const SyncPlan& plan, bool gathers) {
  const int rank = world.rank(), owner = plan.owner_of(rank), group = rank / plan.owners;
  ShardGroups groups;
  groups.exchange = world.split(group, owner);
  if (plan.shards_weights && gathers) groups.gather = world.split(group, owner);
  if (plan.owners < world.size()) groups.replicas = world.split(owner, group);
  return groups;
}

[[noreturn]] void refuse_sync(const std::string& what, const std::string& advice) {
  throw ConfigError(what, {.operation = "strategy", .advice = advice});
}

}  // namespace trireme::inline v0::parallel
