#include "trireme/comm/rounds/program_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/comm/calls/operation.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {
namespace {

// Data of at most this many bytes is sent together with the header.
constexpr std::size_t kSendAhead = 4096;
// Without segments, halving_doubling of 32 MiB on 4 ranks (TCP, one host) took 5 times as long.
constexpr std::size_t kSegmentBytes = 4u << 20;

bool moves_nothing(const Route& route) {
  return std::all_of(route.rounds.begin(), route.rounds.end(), [](const RouteRound& round) {
    return round.sends.empty() && round.receives.empty();
  });
}

// The elements of a segment. An observer of rounds sees each round once. Without messages (one
// rank) each segment would begin inside the one before, and a large buffer exceed the stack.
std::size_t segment_of(const Operation& op, const Route& route, bool watched) {
  const bool adds = op.kind == OpKind::AllReduce || op.kind == OpKind::Reduce;
  const bool whole = !adds || route.pipelined || watched || moves_nothing(route);
  return whole ? op.count : kSegmentBytes / size_of(op.dtype);
}

}  // namespace

ProgramRun::ProgramRun(Engine& engine, std::shared_ptr<Call> call, const Route& route)
    : engine_(engine),
      call_(std::move(call)),
      route_(route),
      width_(size_of(call_->operation.dtype)),
      segment_(segment_of(call_->operation, route, watched())) {
  const Operation& op = call_->operation;
  if (op.total > 1 && kernel::accumulates_wide(combine_of(op.op), op.dtype)) {
    for (const auto& nodes : engine_.fold_plans.of(op.leaves()).nodes_of) {
      leaves_.insert(leaves_.end(), nodes.begin(), nodes.end());
    }
  }
  cut_segment();
  if (!watched()) return;
  tell({.kind = RunEvent::Kind::Begin, .chunk = route_.num_chunks});
  tell_held();
  tell({.kind = RunEvent::Kind::RoundEnd});
}

void ProgramRun::cut_segment() {
  const Operation& op = call_->operation;
  extents_ = extents_of(op, route_.num_chunks, engine_.facts.rank, engine_.facts.size,
                        {segment_begin_, std::min(segment_, op.count - segment_begin_)});
  held_ = {};
  place_inputs();
}

bool ProgramRun::is_wide(kernel::LeafRange node) const {
  return !leaves_.empty() && node.count != call_->operation.total &&
         !std::binary_search(leaves_.begin(), leaves_.end(), node);
}

void ProgramRun::place_inputs() {
  const Operation& op = call_->operation;
  for (const auto& [chunk, nodes] : route_.initial) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      NodeMemory place{nodes[i]};
      const bool terms = op.kind == OpKind::AllReduce;
      place.data = address_in(terms ? op.terms[i].value : op.in, extents_.at(chunk).in);
      place.writable = terms;
      held_[chunk].push_back(place);
    }
  }
}

std::byte* ProgramRun::out_of(int chunk) const {
  const bool wanted = std::binary_search(route_.wanted.begin(), route_.wanted.end(), chunk);
  return wanted ? address_in(call_->operation.out, extents_.at(chunk).out) : nullptr;
}

ProgramRun::NodeMemory ProgramRun::take(int chunk, kernel::LeafRange node) {
  const bool wide = is_wide(node);
  return {node, engine_.scratch.take(bytes_of(chunk, wide)), true, true, wide};
}

void ProgramRun::release(const NodeMemory& place) {
  if (place.scratch) engine_.scratch.give_back(place.data);
}

ProgramRun::NodeMemory& ProgramRun::find(int chunk, kernel::LeafRange node) {
  auto& places = held_[chunk];
  const auto place = std::find_if(places.begin(), places.end(),
                                  [&](const NodeMemory& p) { return p.node == node; });
  TRIREME_CHECK((place != places.end()));
  return *place;
}

void ProgramRun::announced() {
  if (route_.rounds.empty() || call_->operation.bytes() > kSendAhead) return;
  const auto phase = phase_ =
      Phase::open(engine_, [self = shared_from_this()] { self->end_round(); });
  post_sends(*phase);
  sent_ = true;
}

void ProgramRun::tell_held() const {
  for (const auto& [chunk, places] : held_) {
    for (const NodeMemory& place : places) {
      tell({.kind = RunEvent::Kind::Hold,
            .chunk = chunk,
            .node = place.node,
            .data = {place.data, bytes_of(chunk, place.wide)}});
    }
  }
}

void ProgramRun::tell_received(const Movement& receive,
                               const std::vector<NodeMemory>& places) const {
  if (bytes_of(receive.chunk) == 0) return;  // nothing was sent
  for (const NodeMemory& place : places) {
    tell({RunEvent::Kind::Receive,
          receive.chunk,
          receive.peer,
          receive.copy,
          place.node,
          {place.data, bytes_of(receive.chunk, place.wide)}});
  }
}

void ProgramRun::post_sends(Phase& phase) {
  for (const Movement& send : route_.rounds[round_].sends) {
    if (bytes_of(send.chunk) == 0) continue;
    for (const kernel::LeafRange& node : send.nodes) {
      const NodeMemory& place = find(send.chunk, node);
      const std::byte* data = place.data;
      const std::size_t bytes = bytes_of(send.chunk, place.wide);
      phase.send(send.peer, tag_of(Purpose::Data), {data, bytes});
      if (watched())
        tell({RunEvent::Kind::Send, send.chunk, send.peer, false, node, {data, bytes}});
    }
  }
}

void ProgramRun::post_receives(Phase& phase) {
  arriving_.clear();
  for (const Movement& receive : route_.rounds[round_].receives) {
    auto& places = arriving_.emplace_back();
    for (const kernel::LeafRange& node : receive.nodes) {
      std::byte* out = out_of(receive.chunk);
      const bool straight = receive.copy && out && receive.nodes.size() == 1 && !is_wide(node);
      places.push_back(straight ? NodeMemory{node, out, true, false} : take(receive.chunk, node));
      const std::size_t bytes = bytes_of(receive.chunk, places.back().wide);
      if (bytes > 0) phase.recv(receive.peer, tag_of(Purpose::Data), {places.back().data, bytes});
    }
  }
}

void ProgramRun::begin_round() {
  if (round_ == route_.rounds.size()) return end();
  auto phase = std::exchange(phase_, nullptr);
  if (!std::exchange(sent_, false)) {
    phase = Phase::open(engine_, [self = shared_from_this()] { self->end_round(); });
    post_sends(*phase);
  }
  post_receives(*phase);
  if (engine_.failure.broken()) return;  // the user may have freed the buffers
  merge_all();                           // while the messages travel
  phase->close();
}

void ProgramRun::end_round() {
  const RouteRound& round = route_.rounds[round_];
  for (const Movement& send : round.sends) {
    if (send.give) drop(send.chunk);
  }
  for (std::size_t i = 0; i < round.receives.size(); ++i) {
    if (watched()) tell_received(round.receives[i], arriving_[i]);
    if (round.receives[i].copy) drop(round.receives[i].chunk);
    auto& held = held_[round.receives[i].chunk];
    held.insert(held.end(), arriving_[i].begin(), arriving_[i].end());
  }
  unmerged_ = &round.merges;
  ++round_;
  if (watched() || next_round_needs_merges()) merge_all();
  if (watched()) {
    tell_held();
    tell({.kind = RunEvent::Kind::RoundEnd});
  }
  begin_round();
}

void ProgramRun::drop(int chunk) {
  for (const NodeMemory& old : held_[chunk]) release(old);
  held_[chunk].clear();
}

// If false, merge_all() can wait until the next round's messages are under way.
bool ProgramRun::next_round_needs_merges() const {
  if (round_ == route_.rounds.size()) return true;
  const RouteRound& next = route_.rounds[round_];
  for (const auto* side : {&next.sends, &next.receives}) {
    for (const Movement& movement : *side) {
      for (const auto& one : *unmerged_) {
        if (one.chunk == movement.chunk) return true;
      }
    }
  }
  return false;
}

void ProgramRun::merge_all() {
  if (!unmerged_ || unmerged_->empty()) return;
  const CallTrace::Reducing traced(engine_.trace.get());
  for (const auto& [chunk, merges] : *std::exchange(unmerged_, nullptr)) {
    for (const kernel::Merge& one : merges) merge(chunk, one);
  }
}

// Writes the whole sum to `out` if this rank needs it, other sums over an operand if possible.
void ProgramRun::merge(int chunk, const kernel::Merge& merge) {
  const Operation& op = call_->operation;
  NodeMemory& left = find(chunk, merge.left);
  NodeMemory& right = find(chunk, merge.right);
  const kernel::LeafRange node{merge.left.first, merge.left.count + merge.right.count};
  const bool wide = is_wide(node);
  const auto usable = [&](const NodeMemory& place) { return place.writable && place.wide == wide; };
  NodeMemory sum{node};
  if (node.count == op.total && out_of(chunk)) {
    sum.data = out_of(chunk);
  } else if (usable(left) || usable(right)) {
    sum = usable(left) ? left : right;
    sum.node = node;
  } else {
    sum = take(chunk, node);
  }
  if (leaves_.empty()) {
    kernel::combine(combine_of(op.op), op.dtype, left.data, right.data, sum.data,
                    extents_.at(chunk).count);
  } else {
    kernel::combine_wide(combine_of(op.op), op.dtype, left.data, left.wide, right.data, right.wide,
                         sum.data, wide, extents_.at(chunk).count);
  }
  if (watched()) {
    tell({RunEvent::Kind::Add, chunk, -1, false, node, {sum.data, bytes_of(chunk, wide)}});
  }
  for (const NodeMemory* used : {&left, &right}) {
    if (used->data != sum.data) release(*used);
  }
  std::erase_if(held_[chunk], [&](const NodeMemory& place) {
    return place.node == merge.left || place.node == merge.right;
  });
  held_[chunk].push_back(sum);
}

void ProgramRun::end() {
  const Operation& op = call_->operation;
  for (const int chunk : route_.wanted) {
    if (std::byte* out = out_of(chunk); extents_.at(chunk).count > 0) {
      const std::byte* sum = find(chunk, {0, op.total}).data;
      if (sum != out) std::memcpy(out, sum, bytes_of(chunk));
      if (op.op == ReduceOp::Mean)
        kernel::divide(op.dtype, out, extents_.at(chunk).count, op.total);
      if (watched()) {
        tell({RunEvent::Kind::Out, chunk, -1, false, {0, op.total}, {out, bytes_of(chunk)}});
      }
    }
  }
  for (const auto& [chunk, places] : held_) {
    for (const NodeMemory& place : places) release(place);
  }
  segment_begin_ += segment_;
  if (segment_begin_ < op.count) {
    cut_segment();
    round_ = 0;
    return begin_round();
  }
  if (watched()) tell({.kind = RunEvent::Kind::End});
  engine_.finish(call_);
}

}  // namespace trireme::inline v0::comm
