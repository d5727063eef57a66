#include "trireme/show/collective/collective.h"

#include <algorithm>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/comm/rounds/registry.h"

namespace trireme::inline v0::show {

using comm::OpKind;

std::string title_of(OpKind kind) {
  std::string title(comm::name_of(kind));
  std::replace(title.begin(), title.end(), '_', '-');
  return title;
}

const std::vector<OpKind>& drawn_kinds() {
  static const std::vector<OpKind> kinds = {
      OpKind::AllReduce, OpKind::ReduceScatter, OpKind::AllGather, OpKind::Broadcast,
      OpKind::Reduce,    OpKind::Gather,        OpKind::Scatter,   OpKind::AllToAll};
  return kinds;
}

std::vector<std::string> collective_names() {
  std::vector<std::string> names;
  for (const OpKind kind : drawn_kinds()) names.push_back(title_of(kind));
  return names;
}

std::vector<std::string> registered_algorithms() {
  std::set<std::string> names;
  for (const OpKind kind : drawn_kinds())
    for (const auto* entry : comm::algorithms_of(kind)) names.insert(entry->name);
  return {names.begin(), names.end()};
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names = registered_algorithms();
  names.emplace_back("direct");
  return names;
}

OpKind kind_named(std::string_view name) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  for (OpKind kind : drawn_kinds())
    if (title_of(kind) == wanted) return kind;
  throw ConfigError("there is no collective \"" + std::string(name) + "\"",
                    {.advice = "Choose one of " + joined(collective_names()) + "."});
}

const comm::AlgorithmEntry& entry_named(OpKind kind, std::string_view algorithm) {
  if (const auto* entry = comm::find_algorithm(kind, algorithm)) return *entry;
  throw ConfigError(
      "there is no algorithm \"" + std::string(algorithm) + "\" for " + title_of(kind),
      {.advice = "Choose one of " + joined(comm::algorithms_of(kind), &comm::AlgorithmEntry::name) +
                 "."});
}

bool is_direct(OpKind kind, std::string_view algorithm) {
  return kind == OpKind::AllReduce && algorithm == "direct";
}

bool has_root(OpKind kind) {
  return kind == OpKind::Broadcast || kind == OpKind::Reduce || kind == OpKind::Gather ||
         kind == OpKind::Scatter;
}

std::uint32_t leaves_of(OpKind kind, int ranks) {
  const bool adds =
      kind == OpKind::AllReduce || kind == OpKind::ReduceScatter || kind == OpKind::Reduce;
  return adds ? static_cast<std::uint32_t>(ranks) : 1;
}

namespace {

// Term and result are separate arenas, so that a rank's input stays visible until the end.
std::vector<std::int64_t> all_reduce_in_arenas(comm::SimulatedRank& rank, std::size_t count,
                                               std::int64_t value) {
  const std::size_t bytes = count * sizeof(std::int64_t);
  const comm::Arena in = rank.world->allocate(bytes), out = rank.world->allocate(bytes);
  auto* const own = reinterpret_cast<std::int64_t*>(in.bytes().data());
  std::fill_n(own, count, value);
  const comm::Term term{in.buffer(0, count, DType::I64), static_cast<std::uint32_t>(rank.rank), 1};
  rank.world
      ->all_reduce(std::span(&term, 1), static_cast<std::uint32_t>(rank.size),
                   out.buffer(0, count, DType::I64), {.algorithm = "direct"})
      .wait();
  const auto* const sum = reinterpret_cast<const std::int64_t*>(out.bytes().data());
  return {sum, sum + count};
}

}  // namespace

std::vector<std::int64_t> call(comm::SimulatedRank& rank, OpKind kind, std::string_view algorithm,
                               int root, std::size_t count, std::int64_t value) {
  const std::size_t piece = count / static_cast<std::size_t>(rank.size);
  const auto filled = [&](std::size_t n) { return std::vector<std::int64_t>(n, value); };
  const auto buffer = [](std::vector<std::int64_t>& values) {
    return Buffer::of(std::span(values));
  };
  const bool is_root = rank.rank == root;
  const comm::OpOptions options{.algorithm = algorithm};
  std::vector<std::int64_t> in, out;
  switch (kind) {
    case OpKind::AllReduce:
      if (algorithm == "direct") return all_reduce_in_arenas(rank, count, value);
      out = filled(count);
      rank.world->all_reduce(buffer(out), Sum, options).wait();
      break;
    case OpKind::ReduceScatter:
      in = filled(count);
      out.resize(piece);
      rank.world->reduce_scatter(buffer(in), buffer(out), Sum, options).wait();
      break;
    case OpKind::AllGather:
      in = filled(piece);
      out.resize(count);
      rank.world->all_gather(buffer(in), buffer(out), options).wait();
      break;
    case OpKind::Broadcast:
      out = is_root ? filled(count) : std::vector<std::int64_t>(count);
      rank.world->broadcast(buffer(out), root, options).wait();
      break;
    case OpKind::Reduce:
      in = filled(count);
      if (is_root) out.resize(count);
      rank.world->reduce(buffer(in), buffer(out), Sum, root, options).wait();
      break;
    case OpKind::Gather:
      in = filled(piece);
      if (is_root) out.resize(count);
      rank.world->gather(buffer(in), buffer(out), root, options).wait();
      break;
    case OpKind::Scatter:
      if (is_root) in = filled(count);
      out.resize(piece);
      rank.world->scatter(buffer(in), buffer(out), root, options).wait();
      break;
    case OpKind::AllToAll:
      in = filled(count);
      out.resize(count);
      rank.world->all_to_all(buffer(in), buffer(out), options).wait();
      break;
    default:
      throw ConfigError(title_of(kind) + " has no rounds", {.operation = "show"});
  }
  return out;
}

}  // namespace trireme::inline v0::show
