// DirectMove: a collective that only moves data, between ranks that can access one another's
// memory: one round of headers with the buffers' locations, the copies, then a flag for which all
// ranks wait. There are three ways; S is the size of the whole, n the number of ranks.
//
// Pushed: if all outputs that peers write to lie in arenas. Each part is read once, by one rank,
// which writes it to all ranks that need it.
//
//     broadcast     rank r writes slice r of the root's input to all   1 read of S/n, n - 1 writes
//     all_gather    every rank writes its input to all                 1 read of S/n, n writes
//     gather        every rank writes its input to the root            1 read of S/n, 1 write
//
// Staged: otherwise, if an input that peers need lies in ordinary memory (MoveStaging).
//
// Pulled: otherwise. Every rank copies its data out of the inputs, into its own output.
//
//     broadcast     every rank reads the root's input               n - 1 reads of S
//     all_gather    every rank reads all inputs                     n reads of S/n per rank
//     all_to_all    every rank reads its piece of every input       n reads of S/n per rank
//     gather        the root reads all inputs                       n reads of S/n
//     scatter       every rank reads its piece of the root's input  n reads of S/n
#pragma once

#include <optional>

#include "trireme/comm/shared/direct_base.h"
#include "trireme/comm/shared/move_staging.h"

namespace trireme::inline v0::comm {

class DirectMove final : public DirectBase {
 public:
  using DirectBase::DirectBase;
  void announce() override;
  void run() override;

 private:
  bool pushes() const;
  bool stages() const;
  bool push();
  bool pull();
  bool find_source(MovedRange& part);

  std::optional<MoveStaging> moves_;
};

}  // namespace trireme::inline v0::comm
