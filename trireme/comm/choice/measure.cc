#include "trireme/comm/choice/measure.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/median.h"
#include "trireme/base/waiter.h"
#include "trireme/comm/collectives.h"

namespace trireme::inline v0::comm {
namespace {

using Step = std::function<void()>;

constexpr int kBatches = 7;

constexpr OpKind kMeasurable[] = {OpKind::AllReduce,     OpKind::Broadcast, OpKind::AllGather,
                                  OpKind::ReduceScatter, OpKind::AllToAll,  OpKind::Reduce,
                                  OpKind::Gather,        OpKind::Scatter,   OpKind::Barrier};

// Two buffers of the largest size, either in an arena or on the heap.
class Memory {
 public:
  Memory(Communicator& world, std::size_t bytes, const MeasureOptions& options) {
    const std::size_t each = (bytes + 63) / 64 * 64;
    const bool on_host = options.device == Device(), heap = on_host && !options.arena;
    if (heap)
      heap_.resize(2 * each / sizeof(float));
    else
      arena_ = world.allocate(2 * each, options.device);
    const Buffer all =
        heap ? buffer_of(heap_) : arena_.buffer(0, 2 * each / sizeof(float), DType::F32);
    if (on_host) std::memset(all.data, 0, all.bytes());  // makes every page resident
    in_ = all.slice(0, each / sizeof(float));
    out_ = all.slice(each / sizeof(float), each / sizeof(float));
  }
  Buffer in(std::size_t count) const { return in_.slice(0, count); }
  Buffer out(std::size_t count) const { return out_.slice(0, count); }

 private:
  Arena arena_;
  std::vector<float> heap_;
  Buffer in_, out_;
};

Step step_of(Communicator& world, const Memory& memory, std::size_t bytes,
             const MeasureOptions& options) {
  const std::size_t count = bytes / sizeof(float);
  const std::size_t part = count / static_cast<std::size_t>(world.size());
  const std::size_t whole = part * static_cast<std::size_t>(world.size());
  const OpOptions how{.algorithm = options.algorithm};
  Communicator* const group = &world;
  using enum OpKind;
  const OpKind kind = options.kind;
  const bool gathers = kind == AllGather || kind == Gather;
  const bool scatters = kind == ReduceScatter || kind == Scatter;
  const bool divides = gathers || scatters || kind == AllToAll;
  const std::size_t all = divides ? whole : count;
  const Buffer in = memory.in(gathers ? part : all), out = memory.out(scatters ? part : all);
  switch (kind) {
    case Broadcast:
      return [=] { group->broadcast(out, 0, how).wait(); };
    case AllGather:
      return [=] { group->all_gather(in, out, how).wait(); };
    case ReduceScatter:
      return [=] { group->reduce_scatter(in, out, Sum, how).wait(); };
    case AllToAll:
      return [=] { group->all_to_all(in, out, how).wait(); };
    case Reduce:
      return [=] { group->reduce(in, out, Sum, 0, how).wait(); };
    case Gather:
      return [=] { group->gather(in, out, 0, how).wait(); };
    case Scatter:
      return [=] { group->scatter(in, out, 0, how).wait(); };
    case Barrier:
      return [=] { group->barrier(how).wait(); };
    default:
      return [=] { group->all_reduce(out, Sum, how).wait(); };
  }
}

double slowest(Communicator& group, double seconds) {
  trireme::all_reduce(group, std::span(&seconds, 1), ReduceOp::Max, {.label = "measure"});
  return seconds;
}

double timed(Communicator& group, int calls, const std::function<void()>& once) {
  trireme::barrier(group, {.label = "measure"});
  const TimePoint start = group.waiter()->now();
  for (int i = 0; i < calls; ++i) once();
  return slowest(group, to_seconds(group.waiter()->now() - start)) / calls;
}

}  // namespace

double measure(Communicator& group, Duration budget, const std::function<void()>& once) {
  once();  // the first call resolves routes and maps memory
  const double first = timed(group, 3, once);
  // A simulated clock does not advance without messages; then one call is enough.
  const double per_batch = first > 0 ? to_seconds(budget) / kBatches / first : 1;
  const int calls = static_cast<int>(std::clamp(per_batch, 1.0, 10'000.0));
  std::vector<double> batches;
  for (int i = 0; i < kBatches; ++i) batches.push_back(timed(group, calls, once));
  return median(batches);
}

std::vector<OpKind> measurable() { return {std::begin(kMeasurable), std::end(kMeasurable)}; }

OpKind measurable_kind(std::string_view name) {
  const auto named = [](OpKind kind) { return name_of(kind); };
  if (const auto found = std::ranges::find(kMeasurable, name, named);
      found != std::end(kMeasurable))
    return *found;
  throw ConfigError(
      "unknown collective " + std::string(name),
      {.operation = "bench", .advice = "Choose among " + joined(kMeasurable, named) + "."});
}

std::vector<std::size_t> usual_sizes(std::size_t most) {
  std::vector<std::size_t> sizes{8,        64,       1u << 10, 4u << 10,  16u << 10, 64u << 10,
                                 1u << 18, 1u << 20, 4u << 20, 16u << 20, 64u << 20, 128u << 20};
  std::erase_if(sizes, [&](std::size_t size) { return size > most; });
  return sizes;
}

std::vector<Measured> measure(Communicator& world, const MeasureOptions& options) {
  const std::size_t most = *std::max_element(options.sizes.begin(), options.sizes.end());
  const Memory memory(world, most, options);
  const auto budget = from_seconds(options.seconds);
  std::vector<Measured> result;
  for (const std::size_t bytes : options.sizes) {
    result.push_back({bytes, measure(world, budget, step_of(world, memory, bytes, options))});
  }
  return result;
}

}  // namespace trireme::inline v0::comm
