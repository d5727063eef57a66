// ProgramRun: executes one rank's Route over the transport, round by round. Each term of a chunk is
// one message, sent without a copy. A large reduction runs all rounds segment by segment, so that
// operands are still in the caches when they are added. Progress context only.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/calls/run_event.h"
#include "trireme/comm/engine.h"
#include "trireme/comm/rounds/extents.h"
#include "trireme/comm/rounds/phase.h"
#include "trireme/comm/rounds/route.h"

namespace trireme::inline v0::comm {

class ProgramRun final : public Run, public std::enable_shared_from_this<ProgramRun> {
 public:
  ProgramRun(Engine& engine, std::shared_ptr<Call> call, const Route& route);
  /// Posts the sends of the first round, if the messages are small.
  void announced() override;
  void run() override { begin_round(); }
  void cancel() noexcept override { phase_ = nullptr; }

 private:
  struct NodeMemory {
    kernel::LeafRange node;
    std::byte* data = nullptr;
    bool writable = true;
    bool scratch = false;
    bool wide = false;  // fp32, though the call's type has 16 bits
  };
  void cut_segment();
  void place_inputs();
  void post_sends(Phase& phase);
  void post_receives(Phase& phase);
  void begin_round();
  void end_round();
  bool next_round_needs_merges() const;
  void merge_all();
  void drop(int chunk);
  void merge(int chunk, const kernel::Merge& merge);
  void end();
  bool watched() const noexcept { return static_cast<bool>(engine_.facts.options.on_run); }
  void tell(const RunEvent& event) const { engine_.facts.options.on_run(event); }
  void tell_held() const;
  void tell_received(const Movement& receive, const std::vector<NodeMemory>& places) const;
  NodeMemory take(int chunk, kernel::LeafRange node);
  void release(const NodeMemory& place);
  NodeMemory& find(int chunk, kernel::LeafRange node);
  std::size_t bytes_of(int chunk, bool wide = false) const {
    return extents_.at(chunk).count * (wide ? sizeof(float) : width_);
  }
  /// True if a node's values are fp32: partial sums of a 16-bit type are (kernel/reduce.h).
  bool is_wide(kernel::LeafRange node) const;
  std::byte* out_of(int chunk) const;

  Engine& engine_;
  const std::shared_ptr<Call> call_;
  const Route& route_;
  const std::size_t width_;
  std::vector<kernel::LeafRange> leaves_;  // initial nodes of all ranks, if partial sums are wide
  const std::size_t segment_;              // elements of a segment
  std::size_t segment_begin_ = 0;          // first element of the current segment
  ByChunk<Extent> extents_;
  ByChunk<std::vector<NodeMemory>> held_;
  std::vector<std::vector<NodeMemory>> arriving_;                   // per receive of the round
  const std::vector<RouteRound::ChunkMerges>* unmerged_ = nullptr;  // of the last round
  std::size_t round_ = 0;
  std::shared_ptr<Phase> phase_;
  bool sent_ = false;
};

}  // namespace trireme::inline v0::comm
