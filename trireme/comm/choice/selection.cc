#include "trireme/comm/choice/selection.h"

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/nccl/gpu_plan.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {
namespace {

// "tree, pairwise".
std::string list_of(OpKind kind) { return joined(algorithms_of(kind), &AlgorithmEntry::name); }

// Why "direct" is impossible over `transport`.
std::string maps_no_memory(std::string_view transport) {
  return "algorithm direct needs memory that ranks share; transport " + std::string(transport) +
         " cannot map it";
}

}  // namespace

bool has_direct_form(OpKind kind) noexcept {
  return OpKind::AllReduce < kind && kind < OpKind::Barrier;
}

Selection::Selection(Engine& engine)
    : engine_(engine),
      chooser_(Chooser::Group{engine.facts.size, std::string(engine.transport->name()),
                              engine.arenas != nullptr, engine.facts.hosts,
                              engine.facts.options.tuning}) {
  // Refuses an impossible algorithm now. F32 stands for what the job will reduce.
  const std::string& usual = engine.facts.options.algorithm;
  all_reduce(usual == kMpiNative ? kMpiNative : std::string_view(), {.dtype = DType::F32});
}

// The reason why the network itself cannot reduce this; empty if it can.
std::string Selection::why_not_native(const Reduced& what) const {
  const net::Reducer* const reducer = engine_.transport->capabilities().reducer;
  const std::string& group = engine_.facts.options.name;
  const std::string transport(engine_.transport->name());
  const bool exact = what.op == ReduceOp::Min || what.op == ReduceOp::Max ||
                     !kernel::can_divide(what.dtype);  // integers
  if (!reducer) {
    return transport == "mpi" ? group + " is a group of the job, and MPI reduces over the whole"
                              : "it needs transport mpi, and " + group + " has " + transport;
  }
  if (!reducer->can_reduce(what.dtype))
    return "MPI cannot reduce " + std::string(trireme::name_of(what.dtype));
  if (!exact && engine_.facts.options.reproducible)
    return "MPI adds floats in an order of its own, and this job is reproducible";
  return {};
}

std::string Selection::all_reduce(std::string_view wanted, const Reduced& what) const {
  const bool alone = engine_.facts.size == 1;
  const bool named = !wanted.empty();
  if (!named) wanted = engine_.facts.options.algorithm;
  if (wanted == kMpiNative) {
    const std::string reason = alone ? std::string() : why_not_native(what);
    if (reason.empty()) return alone ? "naive" : std::string(kMpiNative);
    if (named)
      throw ConfigError("algorithm mpi-native cannot be used here: " + reason,
                        {.rank = engine_.facts.world_rank(),
                         .operation = "all_reduce",
                         .advice = "Correct the call."});
    wanted = "auto";
  }
  if (wanted == nccl::kNative && engine_.facts.options.device) wanted = "auto";  // on the CPU
  check_all_reduce(wanted, {.ranks = engine_.facts.size,
                            .transport = engine_.transport->name(),
                            .can_map = engine_.arenas != nullptr,
                            .rank = engine_.facts.world_rank()});
  if (alone) return "naive";
  if (wanted != "auto") return std::string(wanted);
  const bool wide = kernel::accumulates_wide(combine_of(what.op), what.dtype);
  return chooser_.choose(OpKind::AllReduce, what.bytes, what.total, wide);
}

std::string Selection::pick(OpKind kind, std::string_view wanted, std::string_view usual) const {
  const bool direct = wanted == "direct" && has_direct_form(kind);
  const bool maps = engine_.arenas || engine_.facts.size == 1;
  if (wanted.empty() || wanted == "auto" || (direct && maps) ||
      wanted == nccl::kNative)  // place() checks the last
    return std::string(usual);
  if (find_algorithm(kind, wanted)) return std::string(wanted);
  const std::string names = list_of(kind);
  throw ConfigError(direct ? maps_no_memory(engine_.transport->name())
                           : "unknown algorithm " + std::string(wanted),
                    {.rank = engine_.facts.world_rank(),
                     .operation = std::string(name_of(kind)),
                     .advice = direct ? "Use algorithm auto or " + names + ", or transport shm."
                                      : "Choose one of " + names + "."});
}

bool Selection::may_be_direct(OpKind kind, std::string_view wanted) const {
  if (wanted.empty()) wanted = engine_.facts.options.algorithm;
  return has_direct_form(kind) && (wanted == "auto" || wanted == "direct");
}

void check_all_reduce(std::string_view wanted, const AllReducePlace& place) {
  const auto refuse = [&](const std::string& what, const std::string& advice) {
    throw ConfigError(what, {.rank = place.rank,
                             .operation = "all_reduce",
                             .label = "comm.algorithm",
                             .advice = advice});
  };
  if (wanted == nccl::kNative && place.transport != "nccl")
    refuse("algorithm nccl-native needs transport nccl",
           "Use comm.transport nccl where there are GPUs, or algorithm auto.");
  if (wanted == "direct" && place.ranks > 1 && !place.can_map)
    refuse(maps_no_memory(place.transport), "Use algorithm auto or ring, or transport shm.");
  if (wanted == "auto" || wanted == "direct" || wanted == kMpiNative || wanted == nccl::kNative ||
      find_algorithm(OpKind::AllReduce, wanted) != nullptr)
    return;
  refuse("unknown algorithm " + std::string(wanted),
         "Choose one of auto, direct, mpi-native, " + list_of(OpKind::AllReduce) + ".");
}

std::string algorithm_of_groups(std::string_view algorithm) {
  return std::string(algorithm == kMpiNative ? "auto" : algorithm);  // MPI reduces over the world
}

}  // namespace trireme::inline v0::comm
