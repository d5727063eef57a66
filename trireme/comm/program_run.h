// ProgramRun: executes one rank's Route over the transport. Rounds follow one another; the terms of
// a chunk travel one message each, straight out of where they lie. A large sum goes through all
// rounds in segments, so that what is added is still in the caches. Progress context only.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/engine.h"
#include "trireme/comm/phase.h"
#include "trireme/comm/run_event.h"

namespace trireme {
inline namespace v0 {
namespace comm {

class ProgramRun : public std::enable_shared_from_this<ProgramRun> {
 public:
  ProgramRun(Engine& engine, std::shared_ptr<Call> call, const Route& route);
  /// Sends what the first round sends, before the ranks have agreed: small messages only.
  void send_ahead();
  void run() { begin_round(); }
  /// The engine broke before run(): lets go of what send_ahead() began.
  void cancel() noexcept { phase_ = nullptr; }

 private:
  struct Place {
    kernel::LeafRange node;
    std::byte* data = nullptr;
    bool writable = true;
    bool scratch = false;
    bool wide = false;  // fp32, though the call's type has 16 bits
  };
  struct Extent {
    std::size_t in = 0, out = 0, count = 0;  // where it begins in the call's buffers
  };
  std::size_t segment_count() const;
  void cut_segment();
  void cut_chunks();
  void cut_pieces();
  void cut_all_to_all();
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
  bool watched() const noexcept { return static_cast<bool>(engine_.options().on_run); }
  void tell(const RunEvent& event) const { engine_.options().on_run(event); }
  void tell_held() const;
  void tell_received(const Movement& receive, const std::vector<Place>& places) const;
  Place take(int chunk, kernel::LeafRange node);
  void release(const Place& place);
  Place& find(int chunk, kernel::LeafRange node);
  std::size_t bytes_of(int chunk, bool wide = false) const {
    return extents_[chunk].count * (wide ? sizeof(float) : width_);
  }
  /// True where a node's values are fp32: a partial sum of a 16-bit type (kernel/reduce.h).
  bool is_wide(kernel::LeafRange node) const;
  std::byte* out_of(int chunk) const;

  Engine& engine_;
  const std::shared_ptr<Call> call_;
  const Route& route_;
  const std::size_t width_;
  std::vector<kernel::LeafRange> leaves_;  // of all ranks, ascending, where partial sums are wide
  const std::size_t segment_;              // elements that go through all rounds at a time
  std::size_t segment_begin_ = 0;          // of the one under way
  std::vector<Extent> extents_;            // of the whole buffer, elements
  std::vector<std::vector<Place>> held_;   // per chunk
  std::vector<std::vector<Place>> arriving_;                        // per receive of the round
  const std::vector<RouteRound::ChunkMerges>* unmerged_ = nullptr;  // of the round that ended
  std::size_t round_ = 0;
  std::shared_ptr<Phase> phase_;
  bool sent_ = false;
};

}  // namespace comm
}  // namespace v0
}  // namespace trireme
