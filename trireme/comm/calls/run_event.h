// RunEvent: one action of a collective on one rank, reported as it happens to
// CommunicatorOptions::on_run. `trireme show` draws these events, `trireme verify` counts them.
//
//     operation:  Begin, Hold for each initial term, RoundEnd; rounds; Out for each chunk, End
//     round:      Send..., Receive..., Add..., Hold for each term held, RoundEnd
//
// Out is reported for chunks that this rank needs. Called in the progress context; `data` is valid
// only during the call. Operations whose data fits into the header (48 bytes) report nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trireme/kernel/tree_sum.h"

namespace trireme::inline v0::comm {

struct RunEvent {
  enum class Kind : std::uint8_t { Begin, Hold, Send, Receive, Add, RoundEnd, Out, End };
  Kind kind = Kind::Begin;
  int chunk = 0;                         // Begin: the number of chunks
  int peer = -1;                         // Send, Receive
  bool copy = false;                     // Receive: replaces what was held
  kernel::LeafRange node = {};           // `data` is the sum of these leaves
  std::span<const std::byte> data = {};  // Add: the sum
  bool read = false;  // Receive: read from the peer's memory, so the peer reports no Send (direct)
};

}  // namespace trireme::inline v0::comm
