#include "trireme/comm/measure.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/comm/collectives.h"

namespace trireme {
inline namespace v0 {
namespace comm {
namespace {

using Seconds = std::chrono::duration<double>;
using Step = std::function<void()>;

constexpr OpKind kMeasurable[] = {OpKind::AllReduce,     OpKind::Broadcast, OpKind::AllGather,
                                  OpKind::ReduceScatter, OpKind::AllToAll,  OpKind::Reduce,
                                  OpKind::Gather,        OpKind::Scatter,   OpKind::Barrier};

// Two buffers of the largest size, in an arena or on the heap.
class Memory {
 public:
  Memory(Communicator& world, std::size_t bytes, bool arena) {
    const std::size_t each = (bytes + 63) / 64 * 64;
    if (arena) arena_ = world.allocate(2 * each);
    if (!arena) heap_.resize(2 * each / sizeof(float));
    const Buffer all =
        arena ? arena_.buffer(0, 2 * each / sizeof(float), DType::F32) : buffer_of(heap_);
    std::memset(all.data, 0, all.bytes());  // every page is there
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
  switch (options.kind) {
    case OpKind::Broadcast:
      return [=, out = memory.out(count)] { group->broadcast(out, 0, how).wait(); };
    case OpKind::AllGather:
      return [=, in = memory.in(part), out = memory.out(whole)] {
        group->all_gather(in, out, how).wait();
      };
    case OpKind::ReduceScatter:
      return [=, in = memory.in(whole), out = memory.out(part)] {
        group->reduce_scatter(in, out, Sum, how).wait();
      };
    case OpKind::AllToAll:
      return [=, in = memory.in(whole), out = memory.out(whole)] {
        group->all_to_all(in, out, how).wait();
      };
    case OpKind::Reduce:
      return [=, in = memory.in(count), out = memory.out(count)] {
        group->reduce(in, out, Sum, 0, how).wait();
      };
    case OpKind::Gather:
      return [=, in = memory.in(part), out = memory.out(whole)] {
        group->gather(in, out, 0, how).wait();
      };
    case OpKind::Scatter:
      return [=, in = memory.in(whole), out = memory.out(part)] {
        group->scatter(in, out, 0, how).wait();
      };
    case OpKind::Barrier:
      return [=] { group->barrier(how).wait(); };
    default:
      return [=, out = memory.out(count)] { group->all_reduce(out, Sum, how).wait(); };
  }
}

double slowest(Communicator& world, double seconds) {
  trireme::all_reduce(world, std::span(&seconds, 1), Max);
  return seconds;
}

double batch(Communicator& world, const Step& step, long calls) {
  const auto waiter = world.waiter();
  world.barrier().wait();
  const TimePoint start = waiter->now();
  for (long i = 0; i < calls; ++i) step();
  return slowest(world, Seconds(waiter->now() - start).count() / double(calls));
}

double measure_step(Communicator& world, const Step& step, double budget) {
  batch(world, step, 2);
  const double once = batch(world, step, 3);
  const long calls = std::clamp(long(budget / 5 / std::max(once, 1e-7)), 1L, 20000L);
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) times.push_back(batch(world, step, calls));
  std::sort(times.begin(), times.end());
  return times[2];
}

}  // namespace

std::vector<OpKind> measurable() { return {std::begin(kMeasurable), std::end(kMeasurable)}; }

OpKind measurable_kind(std::string_view name) {
  std::string names;
  for (OpKind kind : kMeasurable) {
    if (name_of(kind) == name) return kind;
    names += (names.empty() ? "" : ", ") + std::string(name_of(kind));
  }
  throw ConfigError("unknown collective " + std::string(name),
                    {.operation = "bench", .advice = "Choose among " + names + "."});
}

std::vector<std::size_t> usual_sizes(std::size_t most) {
  std::vector<std::size_t> sizes{8,        64,       1u << 10, 4u << 10,  16u << 10, 64u << 10,
                                 1u << 18, 1u << 20, 4u << 20, 16u << 20, 64u << 20, 128u << 20};
  std::erase_if(sizes, [&](std::size_t size) { return size > most; });
  return sizes;
}

std::vector<Measured> measure(Communicator& world, const MeasureOptions& options) {
  const std::size_t most = *std::max_element(options.sizes.begin(), options.sizes.end());
  const Memory memory(world, most, options.arena);
  std::vector<Measured> result;
  for (const std::size_t bytes : options.sizes) {
    const Step step = step_of(world, memory, bytes, options);
    result.push_back({bytes, measure_step(world, step, options.seconds)});
  }
  return result;
}

}  // namespace comm
}  // namespace v0
}  // namespace trireme
