// LayerFactories for ranks that share a micro-batch, have all parameters whole, and each a part of
// the tokens: of every sequence (context parallelism) or of the sequences (expert parallelism,
// where experts are not whole). A parameter's gradient is summed over the group in backward, so all
// ranks end with the micro-batch's; the loss is a sum over tokens, of which each rank has its part.
//
// All ranks of a group run the same blocks in the same order, one micro-batch at a time (lanes =
// 1). They stand on another factory, which makes the layers: local_layers(), tensor_layers(), or
// each other. Losses and gradients are one process's within a tolerance: sums over ranks change the
// order of additions. `group` outlives a factory and all that it made.
#pragma once

#include <memory>

#include "trireme/comm/communicator.h"
#include "trireme/models/layer_factory.h"
#include "trireme/tensor/batch.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

/// Blocks get tokens, and give values, of this rank's positions (context/positions.h); attention is
/// a ring (context/ring_attention.h). A mixture of experts takes a rank's part of a sequence for a
/// sequence of its own.
std::shared_ptr<const models::LayerFactory> context_layers(
    comm::Communicator& group, std::shared_ptr<const models::LayerFactory> inner);

/// Blocks get this rank's sequences (own_sequences()), and of E experts a rank has E/N, to which
/// tokens travel (expert/exchange.h). ConfigError with the arithmetic, when a mixture is made,
/// where the ranks do not divide its experts.
std::shared_ptr<const models::LayerFactory> expert_layers(
    comm::Communicator& group, std::shared_ptr<const models::LayerFactory> inner);

/// The rank-th part of every field's samples (dim 0). `count` stays that of the whole micro-batch.
/// ConfigError with the arithmetic where the ranks do not divide them.
MicroBatch own_sequences(const MicroBatch& whole, int rank, int ranks);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
