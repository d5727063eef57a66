#include "trireme/show/collective/verify_run.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/mixed.h"
#include "trireme/comm/calls/run_event.h"
#include "trireme/comm/choice/cost.h"
#include "trireme/comm/simulate.h"
#include "trireme/kernel/tree_sum.h"

namespace trireme::inline v0::show {
namespace {

using kernel::LeafRange;

constexpr std::size_t kCacheLine = 16;  // F32 in a cache line: chunks are cut at lines

// Element `index` of leaf `leaf`: random in [-1, 1), so that sums round.
template <class T>
T leaf_value(std::uint64_t seed, std::uint32_t leaf, std::size_t index) {
  const std::uint64_t word = mixed((seed * 1000003 + leaf) * 1000003 + index + kMixedStep);
  const auto bits = static_cast<std::int64_t>(word >> 40);
  if constexpr (std::is_integral_v<T>) return bits;
  return static_cast<T>(bits) / static_cast<T>(1 << 23) - 1;
}

// T(first, first + count), literally as docs/numerics.md defines it.
template <class T>
T tree_sum(std::uint64_t seed, LeafRange node, std::size_t index) {
  if (node.count == 1) return leaf_value<T>(seed, node.first, index);
  const std::uint32_t half = node.count / 2;
  return tree_sum<T>(seed, {node.first, half}, index) +
         tree_sum<T>(seed, {node.first + half, node.count - half}, index);
}

template <class T>
std::vector<T> tree_sums(std::uint64_t seed, LeafRange node, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = tree_sum<T>(seed, node, i);
  return values;
}

std::string case_text(int ranks, std::uint32_t total, std::size_t count) {
  return std::to_string(count) + " elements, " + std::to_string(total) + " leaves on " +
         std::to_string(ranks) + " ranks";
}

template <class T>
void reduce_and_compare(comm::SimulatedRank& rank, std::string_view algorithm, std::uint64_t seed,
                        std::uint32_t total, std::size_t count) {
  std::vector<std::vector<T>> values;
  std::vector<comm::Term> terms;
  for (const LeafRange& node :
       kernel::maximal_nodes(kernel::contiguous_share(total, rank.size, rank.rank), total)) {
    values.push_back(tree_sums<T>(seed, node, count));
    terms.push_back({Buffer::of(std::span(values.back())), node.first, node.count});
  }
  std::vector<T> out(count);
  rank.world->all_reduce(terms, total, Buffer::of(std::span(out)), {.algorithm = algorithm}).wait();
  for (std::size_t i = 0; i < count; ++i) {
    const T sum = tree_sum<T>(seed, LeafRange{0, total}, i);
    if (out[i] == sum) continue;
    throw Error(ExitCode::UserCode,
                "the sum is wrong: " + case_text(rank.size, total, count) + ": element " +
                    std::to_string(i) + " is " + std::to_string(out[i]) + " on rank " +
                    std::to_string(rank.rank) + ", must be " + std::to_string(sum),
                {.advice = "Draw it: show all-reduce " + std::string(algorithm) + " --ranks " +
                           std::to_string(rank.size) + "."});
  }
}

}  // namespace

double run_all_reduce(const comm::AlgorithmEntry& entry, int ranks, const std::vector<int>& hosts,
                      std::uint64_t seed) {
  const auto plain = static_cast<std::uint32_t>(ranks);
  const comm::Program program = comm::record(entry.name, entry.generator, ranks, 0, hosts);
  const auto routes =
      comm::resolve(entry.name, program, comm::layout_of(entry.kind, ranks, plain, 0));
  // One cache line per chunk; then counts that leave chunks short or empty.
  const std::size_t even = kCacheLine * static_cast<std::size_t>(program.num_chunks);
  const std::size_t odd = even + 1 + seed % even, few = 13 + seed % 7;

  std::vector<std::size_t> sent(static_cast<std::size_t>(ranks));
  comm::SimulationOptions simulation;
  simulation.network.seed = seed + 1;
  for (const int host : hosts) {
    simulation.world.host_of_rank.push_back("host " + std::to_string(host));
  }
  simulation.prepare = [&](comm::SimulatedRank& rank, comm::CommunicatorOptions& world) {
    world.on_run = [&, own = static_cast<std::size_t>(rank.rank),
                    first = true](const comm::RunEvent& event) mutable {
      if (first && event.kind == comm::RunEvent::Kind::Send) sent[own] += event.data.size();
      if (event.kind == comm::RunEvent::Kind::End) first = false;
    };
  };
  comm::simulate(ranks, simulation, [&](comm::SimulatedRank& rank) {
    reduce_and_compare<float>(rank, entry.name, seed, plain, even);
    reduce_and_compare<float>(rank, entry.name, seed, plain, odd);
    reduce_and_compare<std::int64_t>(rank, entry.name, seed, plain, few);
    reduce_and_compare<float>(rank, entry.name, seed, plain + 1 + seed % plain, odd);
  });

  const double buffer = static_cast<double>(even * sizeof(float));
  const auto planned = comm::buffers_sent(routes);
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    const auto bytes = static_cast<std::size_t>(std::lround(planned[rank] * buffer));
    if (sent[rank] == bytes) continue;
    throw Error(ExitCode::UserCode,
                "the bytes are wrong: rank " + std::to_string(rank) + " of " +
                    std::to_string(ranks) + " sent " + std::to_string(sent[rank]) +
                    ", its program says " + std::to_string(bytes),
                {.advice = "This is a fault of Trireme; please report it."});
  }
  return static_cast<double>(*std::max_element(sent.begin(), sent.end())) / buffer;
}

}  // namespace trireme::inline v0::show
