#include "trireme/show/collective/verify.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <map>
#include <span>
#include <type_traits>

#include "trireme/base/error.h"
#include "trireme/base/mixed.h"
#include "trireme/comm/calls/run_event.h"
#include "trireme/comm/choice/cost.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/comm/simulate.h"
#include "trireme/kernel/tree_sum.h"
#include "trireme/show/collective/collective.h"
#include "trireme/show/collective/recording.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::show {
namespace {

using kernel::LeafRange;

constexpr int kMostVerified = 64;

// Numbers of leaves: one per rank and, for sums, more and fewer, shared evenly and unevenly.
std::vector<std::uint32_t> leaves_to_try(comm::OpKind kind, int ranks) {
  const std::uint32_t plain = leaves_of(kind, ranks);
  if (kind != comm::OpKind::AllReduce) return {plain};
  return {plain, 2 * plain, plain + plain / 2, plain - 1};
}

std::string state_text(const comm::RouteError::State& state) {
  if (!state.waits.empty()) return drawing_of(state.waits, static_cast<int>(state.held.size()));
  std::string text;
  for (std::size_t rank = 0; rank < state.held.size(); ++rank) {
    text += "rank " + std::to_string(rank) + "  held";
    for (int chunk = 0; chunk < state.num_chunks; ++chunk) {
      Cell cell;
      for (const LeafRange& node : state.held[rank].at(chunk)) {
        Parts& parts = cell.emplace_back();
        for (std::uint32_t leaf = node.first; leaf < node.end(); ++leaf)
          parts.push_back(static_cast<int>(leaf));
      }
      text += "  chunk " + std::to_string(chunk) + ": " + (cell.empty() ? "-" : text_of(cell));
    }
    text += "\n";
  }
  return text;
}

// Describes the current exception.
Flaw flaw_of(int ranks) {
  try {
    throw;
  } catch (const comm::RouteError& error) {
    return {ranks, error.message(), state_text(error.state()), error.advice()};
  } catch (const Error& error) {
    return {ranks, error.message(), "", error.advice()};
  } catch (...) {
    return {ranks, "it " + describe(std::current_exception()).sentence, "",
            "It is called once for every rank and only records rounds; correct what throws."};
  }
}

// Adds the placement to the error.
template <class Body>
void on_placement(const VerifyOptions& options, const std::vector<int>& hosts, const Body& body) {
  try {
    body();
  } catch (const comm::RouteError&) {
    throw;  // it has a drawing
  } catch (const Error& error) {
    if (options.hosts == 1) throw;
    throw Error(error.code(), error.message() + " (hosts of the ranks: " + listed(hosts, " ") + ")",
                error.context());
  }
}

VerifiedCount resolve(const VerifyOptions& options, const comm::AlgorithmEntry& entry, int ranks) {
  VerifiedCount count{.ranks = ranks};
  bool first = true;  // the one whose figures are printed
  for (const auto& hosts : placements(ranks, options.hosts)) {
    on_placement(options, hosts, [&] {
      const auto program = comm::record(entry.name, entry.generator, ranks, 0, hosts);
      for (const std::uint32_t total : leaves_to_try(options.kind, ranks)) {
        const auto routes =
            comm::resolve(entry.name, program, comm::layout_of(options.kind, ranks, total, 0));
        if (first && total == leaves_of(options.kind, ranks)) count.shape = comm::shape_of(routes);
      }
    });
    first = false;
  }
  return count;
}

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

// One simulated run of `entry` on `ranks`, placed on `hosts` (Algorithm::host_of_rank), on generated
// data: with element counts that divide evenly and that do not, with one and with several leaves per
// rank, in F32 (compared bit for bit) and I64. Returns what the busiest rank sent, in buffers. Throws
// Error if the sum or the bytes are wrong, or if a rank waits forever.
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
  for (const int host : hosts)
    simulation.world.host_of_rank.push_back("host " + std::to_string(host));
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

double run(const VerifyOptions& options, const comm::AlgorithmEntry& entry, int ranks,
           std::uint64_t seed) {
  const auto places = placements(ranks, options.hosts);
  const auto& hosts =
      places[seed / static_cast<std::uint64_t>(options.most - options.least + 1) % places.size()];
  if (options.kind == comm::OpKind::AllReduce) {
    double sent = 0;
    on_placement(options, hosts, [&] { sent = run_all_reduce(entry, ranks, hosts, seed); });
    return sent;
  }
  const int root = has_root(options.kind) ? static_cast<int>(seed) % ranks : 0;
  const Recording recording = record({.kind = options.kind,
                                      .algorithm = entry.name,
                                      .ranks = ranks,
                                      .root = root,
                                      .hosts = std::min(options.hosts, ranks),
                                      .seed = seed + 1});
  if (const auto faults = recording.faults(); !faults.empty())
    throw Error(ExitCode::UserCode, faults.front());
  const auto sent = recording.sent();
  return static_cast<double>(*std::max_element(sent.begin(), sent.end())) /
         static_cast<double>(recording.buffer_bytes);
}

const comm::AlgorithmEntry& check(const VerifyOptions& options) {
  const int most = options.kind == comm::OpKind::AllReduce ? kMostVerified : kMostRanks;
  if (options.least < 2 || options.least > options.most || options.most > most) {
    throw ConfigError(
        "cannot verify on " + std::to_string(options.least) + " to " +
            std::to_string(options.most) + " ranks",
        {.operation = "verify", .advice = "Give a range within 2.." + std::to_string(most) + "."});
  }
  if (options.hosts < 1 || options.hosts > options.most) {
    throw ConfigError("cannot verify on " + std::to_string(options.hosts) + " hosts",
                      {.operation = "verify",
                       .advice = "Give a number within 1.." + std::to_string(options.most) + "."});
  }
  return entry_named(options.kind, options.algorithm);
}

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

// Follows the waits from the first rank until a rank repeats or waits for no other.
std::vector<int> path_of(const std::map<int, int>& waits_for) {
  std::vector<int> path = {waits_for.begin()->first};
  for (;;) {
    const auto next = waits_for.find(path.back());
    if (next == waits_for.end()) return path;
    const auto seen = std::find(path.begin(), path.end(), next->second);
    const bool circle = seen != path.end();
    if (circle) path.erase(path.begin(), seen);  // drop the path into the cycle
    path.push_back(next->second);
    if (circle) return path;
  }
}

}  // namespace

std::vector<std::vector<int>> placements(int ranks, int hosts) {
  hosts = std::min(hosts, ranks);
  std::vector<std::vector<int>> all{hosts_of(ranks, hosts), {}, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    all[1].push_back(rank % hosts);
    all[2].push_back(std::max(0, rank - (ranks - hosts)));
  }
  std::sort(all.begin() + 1, all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

Verdict verify(const VerifyOptions& options) {
  const comm::AlgorithmEntry& entry = check(options);
  Verdict verdict;
  for (int ranks = options.least; ranks <= options.most; ++ranks) {
    try {
      verdict.counts.push_back(resolve(options, entry, ranks));
    } catch (...) {
      verdict.flaws.push_back(flaw_of(ranks));
    }
  }
  for (int seed = 0; seed < options.seeds && !verdict.counts.empty(); ++seed) {
    const auto at = verdict.counts.begin() + seed % static_cast<int>(verdict.counts.size());
    try {
      const double sent = run(options, entry, at->ranks, static_cast<std::uint64_t>(seed));
      if (at->runs++ == 0) at->most_sent = sent;  // same placement as the formula
    } catch (...) {
      verdict.flaws.push_back(flaw_of(at->ranks));
      verdict.counts.erase(at);
    }
    ++verdict.runs;
  }
  std::stable_sort(verdict.flaws.begin(), verdict.flaws.end(),
                   [](const Flaw& a, const Flaw& b) { return a.ranks < b.ranks; });
  return verdict;
}

std::string drawing_of(const std::vector<comm::RouteError::Wait>& waits, int ranks) {
  std::string text;
  std::map<int, int> waits_for;
  for (const auto& wait : waits) waits_for[wait.rank] = wait.peer;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto wait =
        std::find_if(waits.begin(), waits.end(), [&](const auto& one) { return one.rank == rank; });
    text += rank_text(rank) + "  ";
    if (wait == waits.end()) {
      text += "has ended\n";
      continue;
    }
    const std::string chunk = "chunk " + std::to_string(wait->chunk);
    text += "round " + std::to_string(wait->round + 1) + ": waits for " + rank_text(wait->peer) +
            (wait->to_send ? " to send " : " to receive ") + chunk + "\n";
  }
  const std::vector<int> path = path_of(waits_for);
  for (const int rank : path) text += (text.ends_with('\n') ? "" : " -> ") + rank_text(rank);
  const bool circle = std::count(path.begin(), path.end(), path.back()) == 2;
  return text + (circle ? ": a circle\n" : ", which has ended\n");
}

}  // namespace trireme::inline v0::show
