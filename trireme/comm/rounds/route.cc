#include "trireme/comm/rounds/route.h"

#include <algorithm>
#include <list>
#include <map>
#include <numeric>
#include <optional>
#include <set>

namespace trireme::inline v0::comm {
namespace {

using kernel::LeafRange;
using Nodes = std::vector<LeafRange>;

// Runs the program on sets of leaf ranges instead of data.
class Resolver {
 public:
  Resolver(std::string_view name, const Program& program, const Layout& layout)
      : name_(name), program_(program), layout_(layout) {
    const int size = static_cast<int>(program.rounds_of_rank.size());
    routes_.resize(size);
    held_.resize(size);
    started_.assign(size, false);
    std::vector<int> all(program.num_chunks);
    std::iota(all.begin(), all.end(), 0);
    for (int rank = 0; rank < size; ++rank) {
      routes_[rank].num_chunks = program.num_chunks;
      for (const int chunk : layout.own ? layout.own(rank) : all) {
        held_[rank][chunk] = layout.initial(rank, chunk);
        if (layout.wanted(rank, chunk)) routes_[rank].wanted.push_back(chunk);
      }
      routes_[rank].initial = held_[rank];
      for (const Round& round : program.rounds_of_rank[rank]) {
        for (const Transfer& receive : round.receives) ++wires_[{receive.peer, rank}].takes;
      }
    }
  }

  std::vector<Route> run() {
    const int size = static_cast<int>(routes_.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < size; ++rank) moved |= advance(rank);
    }
    for (int rank = 0; rank < size; ++rank) check_end(rank);
    for (const auto& [ends, wire] : wires_) {
      if (!wire.messages.empty()) {
        refuse(ends.second,
               "never receives what rank " + text(ends.first) + " sends of chunk " +
                   text(wire.messages.front().chunk),
               "Add the receive or remove the send.");
      }
    }
    return std::move(routes_);
  }

 private:
  // Starts the rank's next round, and ends it if all its messages have been sent and the receives
  // of its own sends are posted. True if anything changed.
  bool advance(int rank) {
    const auto& rounds = program_.rounds_of_rank[rank];
    auto& done = routes_[rank].rounds;
    const std::size_t index = started_[rank] ? done.size() - 1 : done.size();
    if (index == rounds.size()) return false;
    const Round& round = rounds[index];
    bool moved = false;
    if (!started_[rank]) {
      start(rank, round);
      started_[rank] = moved = true;
    }
    if (obstacle(rank, round)) return moved;
    finish(rank, round, done.back());
    started_[rank] = false;
    return true;
  }

  void start(int rank, const Round& round) {
    auto& done = routes_[rank].rounds;
    const int begin = done.empty() ? 0 : done.back().end + 1;
    done.emplace_back();
    done.back().begin = done.back().end = begin;
    for (const Transfer& send : round.sends) {
      const Nodes& nodes = held_[rank].at(send.chunk);
      done.back().sends.push_back({send.peer, send.chunk, false, send.give, nodes});
      Wire& wire = wires_[{rank, send.peer}];
      wire.messages.push_back({send.chunk, begin, nodes});
      ++wire.sent;
    }
    for (const Transfer& receive : round.receives) ++wires_[{receive.peer, rank}].awaited;
  }

  // The send that the rank's current round waits for, if any.
  std::optional<RouteError::Wait> obstacle(int rank, const Round& round) {
    const int number = static_cast<int>(routes_[rank].rounds.size()) - 1;
    std::map<int, std::size_t> needed;
    for (const Transfer& receive : round.receives) {
      if (wires_[{receive.peer, rank}].messages.size() < ++needed[receive.peer]) {
        return RouteError::Wait{rank, number, receive.peer, receive.chunk, true};
      }
    }
    for (const Transfer& send : round.sends) {
      const Wire& wire = wires_[{rank, send.peer}];
      if (wire.awaited < std::min(wire.sent, wire.takes)) {  // run() finds sends without a receive
        return RouteError::Wait{rank, number, send.peer, send.chunk, false};
      }
    }
    return std::nullopt;
  }

  void finish(int rank, const Round& round, RouteRound& out) {
    for (const Transfer& send : round.sends) {
      if (send.give) held_[rank][send.chunk].clear();
    }
    std::vector<int> touched;
    for (const Transfer& receive : round.receives) {
      auto& queue = wires_[{receive.peer, rank}].messages;
      const Message message = std::move(queue.front());
      queue.pop_front();
      if (message.chunk != receive.chunk) {
        refuse(rank,
               "takes chunk " + text(receive.chunk) + " from rank " + text(receive.peer) +
                   ", whose next message is chunk " + text(message.chunk),
               "Messages between two ranks arrive in the order in which they were sent: receive in "
               "that order.");
      }
      out.end = std::max(out.end, message.round);
      Nodes& held = held_[rank][receive.chunk];
      if (receive.copy) {
        for (const Transfer& send : round.sends) {
          if (send.chunk == receive.chunk) {
            refuse(rank, "copies into chunk " + text(send.chunk) + " while it sends it",
                   "Receive it a round later, or send it a round earlier.");
          }
        }
        held = message.nodes;
      } else {
        held.insert(held.end(), message.nodes.begin(), message.nodes.end());
        touched.push_back(receive.chunk);
      }
      out.receives.push_back({receive.peer, receive.chunk, receive.copy, false, message.nodes});
    }
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (int chunk : touched) merge(rank, chunk, out);
  }

  void merge(int rank, int chunk, RouteRound& out) {
    Nodes& held = held_[rank][chunk];
    std::sort(held.begin(), held.end());
    for (std::size_t i = 1; i < held.size(); ++i) {
      if (held[i].first < held[i - 1].end()) {
        refuse(rank,
               "adds leaf " + std::to_string(held[i].first) + " twice to chunk " + text(chunk),
               "Send it only leaves that it does not hold, or receive with copy_from, which "
               "replaces what the rank holds.");
      }
    }
    auto merges = kernel::merges(held, layout_.total);
    if (!merges.empty()) out.merges.push_back({chunk, std::move(merges)});
  }

  void check_end(int rank) {
    const auto& rounds = program_.rounds_of_rank[rank];
    if (started_[rank] || routes_[rank].rounds.size() != rounds.size()) refuse_deadlock(rank);
    for (const int chunk : routes_[rank].wanted) {
      if (held_[rank].at(chunk) != Nodes{{0, layout_.total}}) {
        refuse(rank, "ends without the whole sum of chunk " + text(chunk),
               "A rank that holds the missing leaves must send them in an earlier round.");
      }
    }
  }

  static std::string text(int number) { return std::to_string(number); }
  [[noreturn]] void refuse_deadlock(int rank) {
    RouteError::State state{.rank = rank};
    for (int other = 0; other < static_cast<int>(routes_.size()); ++other) {
      if (!started_[other]) continue;
      const std::size_t round = routes_[other].rounds.size() - 1;
      if (const auto wait = obstacle(other, program_.rounds_of_rank[other][round])) {
        state.waits.push_back(*wait);
      }
    }
    const auto own = std::find_if(state.waits.begin(), state.waits.end(),
                                  [&](const auto& wait) { return wait.rank == rank; });
    refuse(rank,
           "waits for ever in its round " + text(own->round + 1) + " for rank " + text(own->peer) +
               (own->to_send ? " to send chunk " : " to receive chunk ") + text(own->chunk),
           "Each send needs its receive, and ranks that wait for one another in a circle must send "
           "and receive in one round.",
           std::move(state));
  }
  [[noreturn]] void refuse(int rank, const std::string& why, const std::string& advice,
                           RouteError::State state = {}) {
    state.rank = rank;
    state.num_chunks = program_.num_chunks;
    state.held = held_;
    throw RouteError("algorithm " + name_ + " on " + std::to_string(routes_.size()) +
                         " ranks: rank " + text(rank) + " " + why,
                     {.operation = "algorithm", .advice = advice}, std::move(state));
  }

  const std::string name_;
  const Program& program_;
  const Layout& layout_;
  std::vector<Route> routes_;
  std::vector<ByChunk<Nodes>> held_;  // [rank]
  std::vector<bool> started_;
  struct Message {
    int chunk, round;
    Nodes nodes;
  };
  struct Wire {
    std::list<Message> messages;        // sent, not yet received
    std::size_t sent = 0, awaited = 0;  // sends and posted receives so far
    std::size_t takes = 0;              // receives in the whole program
  };
  std::map<std::pair<int, int>, Wire> wires_;  // by (from, to)
};

}  // namespace

Layout layout_of(OpKind kind, int size, const kernel::LeafShares& leaves, int root) {
  const auto all = [](int, int) { return true; };
  const auto at_root = [=](int rank, int) { return rank == root; };
  const auto own = [](int rank, int chunk) { return rank == chunk; };
  const auto whole_if = [](auto has) {  // the chunk is one term, which some ranks have
    return [=](int rank, int chunk) { return has(rank, chunk) ? Nodes{{0, 1}} : Nodes{}; };
  };
  const auto share = [=](int rank, int) {
    return kernel::maximal_nodes(leaves.of(size, rank), leaves.total);
  };
  switch (kind) {
    case OpKind::AllReduce:
      return {leaves.total, share, all};
    case OpKind::Reduce:
      return {leaves.total, share, at_root};
    case OpKind::ReduceScatter:
      return {static_cast<std::uint32_t>(size),
              [](int rank, int) {
                return Nodes{{static_cast<std::uint32_t>(rank), 1}};
              },
              own};
    case OpKind::Broadcast:
      return {1, whole_if(at_root), all};
    case OpKind::Scatter:
      return {1, whole_if(at_root), own};
    case OpKind::AllGather:
      return {1, whole_if(own), all};
    case OpKind::Gather:
      return {1, whole_if(own), at_root};
    case OpKind::AllToAll:
      return {1, whole_if([=](int rank, int chunk) { return rank == chunk / size; }),
              [=](int rank, int chunk) { return rank == chunk % size; },
              [=](int rank) {  // to everyone, and from everyone
                std::set<int> chunks;
                for (int peer = 0; peer < size; ++peer) {
                  chunks.insert({rank * size + peer, peer * size + rank});
                }
                return std::vector<int>(chunks.begin(), chunks.end());
              }};
    default:
      throw ConfigError(std::string(name_of(kind)) + " is not made of rounds of messages",
                        {.operation = std::string(name_of(kind)), .advice = "Name a collective."});
  }
}

std::vector<Route> resolve(std::string_view name, const Program& program, const Layout& layout) {
  return Resolver(name, program, layout).run();
}

std::size_t terms_sent(const Route& route) {
  std::size_t count = 0;
  for (const RouteRound& round : route.rounds) {
    for (const Movement& send : round.sends) count += send.nodes.size();
  }
  return count;
}

}  // namespace trireme::inline v0::comm
