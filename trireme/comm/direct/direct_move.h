// DirectMove: a collective that only moves data, where ranks reach one another's memory: one copy,
// one round of headers (with the buffers' places), then a flag that all wait for.
//
// Pulled: every rank copies what it shall have straight out of its peers' inputs; nobody writes
// into another rank's memory.
//
//     broadcast     everyone reads the root's input          n - 1 reads of S
//     all_gather    everyone reads everyone's input          n reads of S/n a rank
//     all_to_all    everyone reads its piece of every input  n reads of S/n a rank
//     gather        the root reads everyone's input          n reads of S/n
//     scatter       everyone reads its piece of the root's   n reads of S/n
//
// Pushed: where every output that others fill lies in an arena, what is read is read once, by one
// rank, and written to all who shall have it; all cores copy.
//
//     broadcast     everyone gives slice r of the root's input to all  1 read of S/n, n - 1 writes
//     all_gather    everyone gives its input to all                    1 read of S/n, n writes
//     gather        everyone gives its input to the root               1 read of S/n, 1 write
//
// Staged: where inputs lie in ordinary memory (MoveStaging).
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/direct/direct_base.h"
#include "trireme/comm/direct/move_staging.h"
#include "trireme/comm/direct/moved_part.h"

namespace trireme {
inline namespace v0 {
namespace comm {

class DirectMove final : public DirectBase {
 public:
  using DirectBase::DirectBase;
  void announce(BoardMemory::Slot& slot) override;
  void run() override;
  bool waits() const override;
  bool poll() override;
  bool owes(int peer) const override;

 private:
  bool pushes() const;
  bool stages() const;
  bool push();
  bool pull();
  bool find_source(Part& part);

  std::unique_ptr<MoveStaging> staging_;
};

}  // namespace comm
}  // namespace v0
}  // namespace trireme
