#include "trireme/comm/choice/cost.h"

#include <algorithm>

namespace trireme::inline v0::comm {
namespace {

struct Load {  // of one rank in one round
  double messages = 0, sent = 0, added = 0;
};

Load load_of(const Route& route, const RouteRound& round, double partial, std::uint32_t total) {
  const double chunk = 1.0 / route.num_chunks;
  Load load;
  for (const Movement& send : round.sends) {
    load.messages += static_cast<double>(send.nodes.size());
    for (const kernel::LeafRange& node : send.nodes) {
      load.sent += (node.count == 1 || node.count == total ? 1 : partial) * chunk;
    }
  }
  for (const auto& merges : round.merges) {
    load.added += static_cast<double>(merges.merges.size()) * chunk;
  }
  return load;
}

// The number of leaves of the sum: those that the ranks hold at the beginning.
std::uint32_t leaves_of(std::span<const Route> routes) {
  std::uint32_t end = 0;
  for (const Route& route : routes) {
    for (const auto& [chunk, held] : route.initial) {
      for (const kernel::LeafRange& node : held) end = std::max(end, node.first + node.count);
    }
  }
  return end;
}

// The longest chain of dependencies, in units of `member`. Runs the rounds as the executor does: a
// send starts when its round begins; a round ends when its receives have arrived and been added.
double longest_way(std::span<const Route> routes, double Load::*member, double partial,
                   int* rounds = nullptr) {
  const std::uint32_t total = leaves_of(routes);
  const bool after = member == &Load::added;
  const int size = static_cast<int>(routes.size());
  std::vector<std::size_t> at(size, 0);
  std::vector<double> now(size, 0);
  std::vector<int> depth(size, 0);
  struct Sent {
    double when;
    int depth;
  };
  std::vector<std::vector<std::vector<Sent>>> sent(size, std::vector<std::vector<Sent>>(size));
  std::vector<std::vector<std::size_t>> taken(size, std::vector<std::size_t>(size, 0));
  std::vector<bool> begun(size, false);
  std::vector<std::size_t> need(size, 0);  // by peer; zero again after each look
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < size; ++rank) {
      if (at[rank] == routes[rank].rounds.size()) continue;
      const RouteRound& round = routes[rank].rounds[at[rank]];
      const double own = load_of(routes[rank], round, partial, total).*member;
      if (!begun[rank]) {
        if (!after) now[rank] += own;
        ++depth[rank];
        for (const Movement& send : round.sends) {
          sent[rank][send.peer].push_back({now[rank], depth[rank]});
        }
        begun[rank] = moved = true;
      }
      bool there = true;
      for (const Movement& receive : round.receives) {
        there &=
            taken[receive.peer][rank] + ++need[receive.peer] <= sent[receive.peer][rank].size();
      }
      for (const Movement& receive : round.receives) need[receive.peer] = 0;
      if (!there) continue;
      for (const Movement& receive : round.receives) {
        const Sent& message = sent[receive.peer][rank][taken[receive.peer][rank]++];
        now[rank] = std::max(now[rank], message.when);
        depth[rank] = std::max(depth[rank], message.depth);
      }
      if (after) now[rank] += own;
      begun[rank] = false;
      ++at[rank];
      moved = true;
    }
  }
  if (rounds) *rounds = *std::max_element(depth.begin(), depth.end());
  return *std::max_element(now.begin(), now.end());
}

}  // namespace

std::vector<double> buffers_sent(std::span<const Route> routes) {
  std::vector<double> sent;
  for (const Route& route : routes) {
    sent.push_back(static_cast<double>(terms_sent(route)) / route.num_chunks);
  }
  return sent;
}

plan::CostShape shape_of(std::span<const Route> routes, double partial) {
  plan::CostShape shape;
  if (routes.empty()) return shape;
  shape.messages = longest_way(routes, &Load::messages, partial, &shape.rounds);
  shape.sent = longest_way(routes, &Load::sent, partial);
  shape.added = longest_way(routes, &Load::added, partial);
  return shape;
}

plan::CostShape shape_of(const AlgorithmEntry& entry, int size, std::uint32_t total, int root,
                         const std::vector<int>& hosts, int pieces, double partial) {
  const Program program = record(entry.name, entry.generator, size, root, hosts, pieces);
  return shape_of(resolve(entry.name, program, layout_of(entry.kind, size, total, root)), partial);
}

}  // namespace trireme::inline v0::comm
