// ShardEvent: what ZeRO-3 does to a rank's memory, reported at once to
// StrategyContext::on_shard_event; `trireme show zero3` draws these.
//
// In order, one at a time: Gather (the gather of a block's whole weights has started), Use (a
// block's use begins: it waits for its weights, the next block's are requested, it computes), Free
// (a block's whole weights are freed), Send (a bucket's leaves are being sent to their owners),
// Fold (this rank's part of a bucket has been added up).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "trireme/sync/parameter_sync.h"

namespace trireme::inline v0::parallel {

struct ShardEvent {
  enum class Kind : std::uint8_t { Gather, Use, Free, Send, Fold };
  Kind kind = Kind::Use;
  Use use = {};              // Use
  std::uint32_t number = 0;  // the block of Gather and Free, the bucket of Send and Fold
  std::size_t bytes = 0;     // taken by Gather and Send, given back by Free and Fold
};

using OnShardEvent = std::function<void(const ShardEvent&)>;

}  // namespace trireme::inline v0::parallel
