// LayerGroup: the ranks that run every layer together, by context, tensor or expert parallelism. It
// cuts micro-batches for this rank, joins losses and values, and makes the layers that communicate.
// For a rank that runs its layers alone it changes nothing.
#pragma once

#include <memory>
#include <span>

#include "trireme/models/layer_factory.h"
#include "trireme/optim/owned_slice.h"
#include "trireme/placement/grid.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/model_parts.h"

namespace trireme::inline v0::parallel {

/// How expert-parallel ranks share a micro-batch's sequences. Cut: ConfigError if the number of
/// ranks does not divide them.
enum class Sequences : std::uint8_t { Cut, CutIfEven, Whole };

class LayerGroup {
 public:
  /// `grid` outlives it. `sequence`: StrategyOptions::sequence.
  LayerGroup(const Grid& grid, bool sequence);

  /// While the result lives, this thread's blocks and losses use the group's layers. A loss may
  /// also see only a part of the logits.
  std::unique_ptr<models::LayersScope> use() const {
    return layers_ ? std::make_unique<models::LayersScope>(layers_) : nullptr;
  }

  /// This rank's sequences and positions.
  MicroBatch cut(const MicroBatch& micro, Sequences sequences) const;
  /// The sum over the group of `loss`, which each rank computed from its cut() of the whole
  /// `micro`. Backward passes the gradient on to this rank's loss unchanged.
  at::Tensor joined(at::Tensor loss, const MicroBatch& micro, Sequences sequences) const;
  /// Every tensor [B, T/N, ...] of a value with all positions [B, T, ...]. Collective.
  models::Value joined(models::Value value) const;

  /// ConfigError if the model has nothing that this group can divide.
  void check_model(const ModelParts& parts, int rank) const;
  /// ConfigError if gradients differ of a parameter that every rank holds whole. Collective.
  /// `sharded`: owners cut gradients, so the slices of tensor-parallel ranks are not comparable.
  void check_gradients(std::span<const optim::OwnedSlice> owned, const ModelParts& parts,
                       bool sharded) const;

 private:
  bool cuts_sequences(const MicroBatch& micro, Sequences sequences) const;

  const Grid& grid_;
  std::shared_ptr<const models::LayerFactory> layers_;  // null: whole ones
};

}  // namespace trireme::inline v0::parallel
