// DirectMove: a collective that only moves data, where ranks reach one another's memory. Every rank
// copies what it shall have straight out of its peers' inputs: one copy, nobody writes into another
// rank's memory. One round of headers (with the inputs' places), then a flag that all wait for: the
// buffers are their owners' again, and nobody leaves the group while another is still at it.
//
//     broadcast     everyone reads the root's input          n - 1 reads of S
//     all_gather    everyone reads everyone's input          n reads of S/n a rank
//     all_to_all    everyone reads its piece of every input  n reads of S/n a rank
//     gather        the root reads everyone's input          n reads of S/n
//     scatter       everyone reads its piece of the root's   n reads of S/n
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/direct/direct_call.h"
#include "trireme/comm/direct/peer_memory.h"
#include "trireme/comm/engine.h"

namespace trireme {
inline namespace v0 {
namespace comm {

/// Bytes [source, source + bytes) of the input of rank `from`, to `target` in one's own output.
struct Part {
  int from = 0;
  std::size_t source = 0, target = 0, bytes = 0;
};

class DirectMove final : public DirectCall {
 public:
  DirectMove(Engine& engine, std::shared_ptr<Call> call);
  void announce(BoardMemory::Slot& slot) override;
  void run() override;
  bool waits() const override;
  bool poll() override;
  bool owes(int peer) const override;

 private:
  bool find_source(Part& part);

  Engine& engine_;
  const std::shared_ptr<Call> call_;
  PeerMemory memory_;
};

/// What `rank` of `size` reads in `operation`, one's own input included.
std::vector<Part> parts_of(const Operation& operation, int rank, int size);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
