#include "trireme/comm/choice/tune.h"

#include <algorithm>
#include <set>
#include <string>

#include "trireme/comm/collectives.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {
namespace {

constexpr double kHopeless = 100;

// The time of one message of `bytes` between ranks 0 and 1; the other ranks wait.
double one_way(Communicator& group, std::size_t bytes, Duration budget) {
  std::vector<std::uint8_t> data(bytes);
  const Buffer buffer = Buffer::of(std::span(data));
  const int rank = group.rank();
  return measure(group, budget,
                 [&] {
                   if (rank > 1) return;
                   const int peer = 1 - rank;
                   for (const bool sends : {rank == 0, rank == 1}) {
                     (sends ? group.send(buffer, peer) : group.recv(buffer, peer)).wait();
                   }
                 }) /
         2;
}

}  // namespace

plan::LinkCost measure_link(Communicator& group, Duration budget) {
  if (group.size() == 1) return {};
  constexpr std::size_t kLittle = 8, kMuch = 4u << 20, kCount = 1u << 18;
  plan::LinkCost link;
  link.alpha = one_way(group, kLittle, budget);
  link.beta = std::max(one_way(group, kMuch, budget) - link.alpha, 0.0) / kMuch;
  std::vector<float> left(kCount, 1), right(kCount, 2);
  link.gamma = measure(group, budget,
                       [&] {
                         kernel::combine(kernel::Combine::Sum, DType::F32, left.data(),
                                         right.data(), left.data(), kCount);
                       }) /
               (kCount * sizeof(float));
  return link;
}

plan::Tuning tune(Communicator& group, const TuneOptions& options) {
  plan::Tuning tuning;
  const std::string transport(group.transport_name());
  const auto tell = [&](const std::string& what) {
    if (group.rank() == 0 && options.progress) options.progress(what);
  };
  tell("link");
  tuning.links[transport] = measure_link(group, options.budget);
  std::vector<std::string> names;
  for (const AlgorithmEntry* entry : algorithms_of(OpKind::AllReduce)) names.push_back(entry->name);
  if (group.can_map()) names.push_back("direct");
  const std::size_t most = *std::max_element(options.sizes.begin(), options.sizes.end());
  const Arena arena = group.allocate(most);
  std::set<std::string> hopeless;
  for (const std::size_t bytes : options.sizes) {
    double best = 1e300;
    std::vector<std::pair<std::string, double>> times;
    for (const std::string& name : names) {
      if (hopeless.contains(name)) continue;
      tell("all_reduce " + name + ", " + std::to_string(bytes) + " bytes");
      const Buffer buffer = arena.buffer(0, bytes / sizeof(float), DType::F32);
      const double seconds = measure(group, options.budget, [&] {
        group.all_reduce(buffer, ReduceOp::Max, {.label = "tune", .algorithm = name}).wait();
      });
      tuning.add({"all_reduce", name, transport, group.size(), bytes, seconds});
      times.emplace_back(name, seconds);
      best = std::min(best, seconds);
    }
    for (const auto& [name, seconds] : times) {
      if (seconds > kHopeless * best) hopeless.insert(name);
    }
  }
  return tuning;
}

}  // namespace trireme::inline v0::comm
