#include "trireme/comm/trace/gather_trace.h"

#include <limits>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/kernel/philox.h"
#include "trireme/observe/machine.h"

namespace trireme::inline v0::comm {
namespace {

constexpr int kRounds = 8;
constexpr std::uint32_t kAsk = 0x7ffe, kAnswer = 0x7fff;  // tags

Buffer buffer_of_one(std::int64_t& value) { return Buffer::of(std::span<std::int64_t>(&value, 1)); }

void answer(Communicator& world, int peer, const std::function<std::int64_t()>& clock) {
  for (int round = 0; round < kRounds; ++round) {
    std::int64_t value = 0;
    world.recv(buffer_of_one(value), peer, kAsk, {.label = "clock"}).wait();
    value = clock();
    world.send(buffer_of_one(value), peer, kAnswer, {.label = "clock"}).wait();
  }
}

ClockOffset ask(Communicator& world, const std::function<std::int64_t()>& clock) {
  ClockOffset best{.error = std::numeric_limits<std::int64_t>::max()};
  for (int round = 0; round < kRounds; ++round) {
    std::int64_t theirs = 0, mine = clock();
    const std::int64_t begin = mine;
    world.send(buffer_of_one(mine), 0, kAsk, {.label = "clock"}).wait();
    world.recv(buffer_of_one(theirs), 0, kAnswer, {.label = "clock"}).wait();
    const std::int64_t half = (clock() - begin) / 2;
    if (half < best.error) best = {theirs - (begin + half), half};
  }
  return best;
}

}  // namespace

ClockOffset measure_clock(Communicator& world, std::string_view name,
                          const std::function<std::int64_t()>& clock) {
  std::int64_t mine = name.empty() ? 0 : static_cast<std::int64_t>(kernel::stream_of(name) | 1);
  std::vector<std::int64_t> all(static_cast<std::size_t>(world.size()));
  world.all_gather(buffer_of_one(mine), Buffer::of(std::span(all)), {.label = "clock"}).wait();
  const auto same = [&](int rank) {
    return all[0] != 0 && all[static_cast<std::size_t>(rank)] == all[0];
  };
  if (world.rank() != 0) return same(world.rank()) ? ClockOffset{} : ask(world, clock);
  for (int rank = 1; rank < world.size(); ++rank)
    if (!same(rank)) answer(world, rank, clock);
  return {};
}

std::vector<observe::RankTrace> gather_traces(Communicator& world, observe::RankTrace own) {
  std::string mine = own.to_bytes();
  const auto size = static_cast<std::size_t>(world.size());
  std::int64_t length = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> lengths(size);
  world.all_gather(buffer_of_one(length), Buffer::of(std::span(lengths)), {.label = "trace"})
      .wait();
  std::vector<observe::RankTrace> traces;
  const auto bytes = [](std::string& text) {
    return Buffer::of(std::span(reinterpret_cast<std::uint8_t*>(text.data()), text.size()));
  };
  if (world.rank() != 0) {
    world.send(bytes(mine), 0, kAnswer, {.label = "trace"}).wait();
    return traces;
  }
  traces.push_back(std::move(own));
  for (std::size_t rank = 1; rank < size; ++rank) {
    std::string text(static_cast<std::size_t>(lengths[rank]), '\0');
    world.recv(bytes(text), static_cast<int>(rank), kAnswer, {.label = "trace"}).wait();
    traces.push_back(observe::RankTrace::from_bytes(text));
  }
  return traces;
}

std::vector<observe::RankTrace> gather_traces(Communicator& world, const observe::Trace& trace,
                                              std::string host) {
  observe::RankTrace own = trace.collect();
  own.rank = world.rank();
  own.host = std::move(host);
  const auto clock = [&] { return world.waiter()->now().time_since_epoch().count(); };
  const ClockOffset offset = measure_clock(world, observe::clock_name(), clock);
  own.clock_offset = offset.nanoseconds;
  own.clock_error = offset.error;
  return gather_traces(world, std::move(own));
}

}  // namespace trireme::inline v0::comm
