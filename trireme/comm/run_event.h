// RunEvent: what a collective does on one rank, told while it does it to whoever asked
// (CommunicatorOptions::on_run). `trireme show` draws these, `trireme verify` counts them.
//
// Per operation: Begin, Hold for each term at the start, RoundEnd; per round Send…, Receive…, Add…,
// then Hold for each term held and RoundEnd; at the last Out for each chunk that this rank wanted,
// and End.
// Called in the progress context; `data` is valid during the call alone. Operations that travel in
// their header (at most 48 bytes a rank) have no rounds and tell nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trireme/kernel/tree_sum.h"

namespace trireme {
inline namespace v0 {
namespace comm {

struct RunEvent {
  enum class Kind : std::uint8_t { Begin, Hold, Send, Receive, Add, RoundEnd, Out, End };
  Kind kind = Kind::Begin;
  int chunk = 0;                         // Begin: how many there are
  int peer = -1;                         // Send, Receive
  bool copy = false;                     // Receive: replaces what was held
  kernel::LeafRange node = {};           // which leaves the data are the sum of
  std::span<const std::byte> data = {};  // Add: the sum
  bool read = false;  // Receive: out of the peer's memory, which tells no Send (direct)
};

}  // namespace comm
}  // namespace v0
}  // namespace trireme
