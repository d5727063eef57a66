// The RunEvents of a direct all_reduce; slice r is chunk r. In place there are two rounds: rank r
// reads its slice of all terms and adds them; then every rank has received all sums.
#include "trireme/comm/calls/run_event.h"
#include "trireme/comm/shared/direct_run.h"

namespace trireme::inline v0::comm {
namespace {

using Kind = RunEvent::Kind;

}  // namespace

void DirectRun::tell_start() const {
  const auto& tell = engine_.facts.options.on_run;
  tell({.kind = Kind::Begin, .chunk = size_});
  for (int chunk = 0; chunk < size_; ++chunk) tell_terms(chunk);
  tell({.kind = Kind::RoundEnd});
}

void DirectRun::tell_terms(int chunk) const {
  const Operation& op = call_->operation;
  const Slice slice = slice_of(op.count, chunk);
  for (std::size_t i = 0; i < op.terms.size(); ++i) {
    engine_.facts.options.on_run(
        {.kind = Kind::Hold,
         .chunk = chunk,
         .node = plan_.nodes_of[rank_][i],
         .data = {address_in(op.terms[i].value, slice.begin), slice.count * width_}});
  }
}

void DirectRun::tell_reads() const {
  const Slice slice = result_slice(rank_);
  std::size_t operand = 0;
  for (int rank = 0; rank < size_; ++rank) {
    for (const kernel::LeafRange& node : plan_.nodes_of[rank]) {
      const std::byte* data = pointers_.in[operand++];
      if (rank == rank_ || slice.count == 0) continue;
      engine_.facts.options.on_run({.kind = Kind::Receive,
                                    .chunk = rank_,
                                    .peer = rank,
                                    .node = node,
                                    .data = {data, slice.count * width_},
                                    .read = true});
    }
  }
}

void DirectRun::tell_reduced() const {
  const auto& tell = engine_.facts.options.on_run;
  const Operation& op = call_->operation;
  const Slice own = result_slice(rank_);
  const kernel::LeafRange all{0, op.total};
  const std::span<const std::byte> sum(address_in(op.out, own.begin), own.count * width_);
  for (std::size_t i = 1; i < pointers_.in.size(); ++i) {
    tell({.kind = Kind::Add, .chunk = rank_, .node = all, .data = sum});
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || sum.empty()) continue;
    tell({.kind = Kind::Send, .chunk = rank_, .peer = peer, .node = all, .data = sum});
  }
  tell({.kind = Kind::Hold, .chunk = rank_, .node = all, .data = sum});
  for (int chunk = 0; chunk < size_; ++chunk) {
    if (chunk != rank_) tell_terms(chunk);
  }
  tell({.kind = Kind::RoundEnd});
}

void DirectRun::tell_end() const {
  const auto& tell = engine_.facts.options.on_run;
  const Operation& op = call_->operation;
  const kernel::LeafRange all{0, op.total};
  for (const Kind kind : {Kind::Receive, Kind::Hold, Kind::Out}) {
    for (int chunk = 0; chunk < size_; ++chunk) {
      const Slice slice = slice_of(op.count, chunk);
      const bool came = way_ == Way::InPlace && chunk != rank_ && slice.count > 0;
      if (kind == Kind::Receive && !came) continue;
      tell({.kind = kind,
            .chunk = chunk,
            .peer = kind == Kind::Receive ? chunk : -1,
            .copy = kind == Kind::Receive,
            .node = all,
            .data = {address_in(op.out, slice.begin), slice.count * width_}});
    }
    if (kind == Kind::Hold) tell({.kind = Kind::RoundEnd});
  }
  tell({.kind = Kind::End});
}

}  // namespace trireme::inline v0::comm
