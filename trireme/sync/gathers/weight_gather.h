// WeightGather: when a rank that owns a shard of the weights gets the shards that other owners
// update. Not thread safe.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "trireme/sync/parameter_sync.h"

namespace trireme::inline v0::parallel {

struct SyncSetup;

class WeightGather {
 public:
  virtual ~WeightGather() = default;
  /// Whether weights move within a step's passes, so that ranks go through them together.
  virtual bool in_passes() const = 0;
  /// Starts a step. `order` has the uses of all parts of the model on this rank. Those that need
  /// weights are numbered, and gathered in this order.
  virtual void begin(std::span<const Use> order) = 0;
  /// Takes part in the uses before number `place`, and waits for the weights of this one.
  virtual Pin acquire(Use use, std::size_t place) = 0;
  /// Takes part in the uses before number `place`. Released uses stay released.
  virtual void pass(std::size_t place) = 0;
  /// After the update.
  virtual Work publish() = 0;
};

/// Every rank keeps whole weights, and gathers all of them after each update.
std::shared_ptr<WeightGather> gather_after_update(const SyncSetup& setup);
/// A rank keeps its own shards, and gathers a block's whole weights before each use (UnitGather).
std::shared_ptr<WeightGather> gather_before_use(const SyncSetup& setup);

}  // namespace trireme::inline v0::parallel
