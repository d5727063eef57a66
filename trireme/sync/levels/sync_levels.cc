// The values of parallel.sync. A new level is a file with its class, and a line of list.inc.
#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/refuse.h"
#include "trireme/base/transports.h"
#include "trireme/sync/levels/level.h"
#include "trireme/sync/levels/plain_sync.h"

namespace trireme::inline v0::parallel {

#define TRIREME_LEVEL(name) Level name##_level();
#include "trireme/sync/levels/list.inc"
#undef TRIREME_LEVEL

namespace {

// A level whose ranks are not kept equal by gradient sums; `kind` says what is done instead.
Level apart(std::string_view name, bool Level::*kind) {
  Level level = plain_level();
  level.name = name;
  level.*kind = true;
  return level;
}

std::span<const Level> levels() {
  static const std::array all = {
#define TRIREME_LEVEL(name) name##_level(),
#include "trireme/sync/levels/list.inc"
#undef TRIREME_LEVEL
      apart("local_sgd", &Level::local), apart("diloco", &Level::local),
      apart("easgd", &Level::local),     apart("gossip", &Level::local),
      apart("server", &Level::served),
  };
  return all;
}

const Level* find_level(std::string_view name) {
  const auto found = std::ranges::find(levels(), name, &Level::name);
  return found == levels().end() ? nullptr : &*found;
}

bool has(std::string_view name, bool Level::*trait) {
  const Level* found = find_level(name);
  return found != nullptr && found->*trait;
}

}  // namespace

std::vector<std::string> sync_names() {
  std::vector<std::string> names;
  for (const Level& one : levels()) names.emplace_back(one.name);
  return names;
}

std::vector<std::string> level_names(bool (*such)(const std::string&), bool value) {
  std::vector<std::string> names;
  for (const std::string& name : sync_names())
    if (!is_local(name) && !is_served(name) && (such == nullptr || such(name) == value))
      names.push_back(name);
  return names;
}

std::string levels_help() {
  const auto text = [](const std::string& name) {
    return name + ", " + std::string(find_level(name)->keeps);
  };
  return joined(level_names(), text, "; ");
}

bool shards_state(const std::string& sync) { return plan_sync(sync, 2, 0, 2).sharded(); }
bool goes_in_rounds(const std::string& sync) { return plan_sync(sync, 2, 0, 2).shards_gradients(); }
bool shards_weights(const std::string& sync) { return has(sync, &Level::weights); }
bool shards_in_groups(const std::string& sync) { return has(sync, &Level::groups); }
bool is_local(const std::string& sync) { return has(sync, &Level::local); }
bool is_served(const std::string& sync) { return has(sync, &Level::served); }

SyncPlan plan_sync(const std::string& sync, int size, int shard, int local_size) {
  const Level* found = find_level(sync);
  if (found == nullptr)
    refuse_sync("parallel.sync = \"" + sync + "\" is no way to synchronise",
                "Use " + one_of(sync_names()) + ".");
  if ((found->local || found->served) && shard > 1)
    refuse_sync("parallel.shard = " + std::to_string(shard) +
                    " cannot be combined with parallel.sync = \"" + sync +
                    "\": every rank has a copy of its own",
                "Leave parallel.shard out.");
  SyncPlan plan = found->plan({sync, size, shard, local_size});
  plan.sync = sync;
  plan.title = found->title;
  plan.shards_weights = found->weights && plan.sharded();
  plan.local = found->local;
  plan.served = found->served;
  return plan;
}

std::unique_ptr<BucketedSync> make_parameter_sync(const SyncSetup& setup) {
  return setup.plan.sharded() ? find_level(setup.plan.sync)->make(setup)
                              : make_level<PlainSync>(setup);
}

ShardGroups make_shard_groups(comm::Communicator& world, const SyncPlan& plan, bool gathers) {
  const int rank = world.rank(), owner = plan.owner_of(rank), group = rank / plan.owners;
  ShardGroups groups;
  groups.exchange = world.split(group, owner);
  if (plan.shards_weights && gathers) groups.gather = world.split(group, owner);
  if (plan.owners < world.size()) groups.replicas = world.split(owner, group);
  return groups;
}

void refuse_sync(const std::string& what, const std::string& advice) {
  refuse("strategy", what, advice);
}

}  // namespace trireme::inline v0::parallel
