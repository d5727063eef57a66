// LayerFactories for ranks that share a micro-batch. Each rank has all parameters and some of the
// tokens: a part of every sequence (context parallelism), or some of the sequences (expert
// parallelism, where each rank has only some experts). Backward sums a parameter's gradient over
// the group, so all ranks get that of the micro-batch. A rank's loss is the sum over its tokens.
//
// All ranks of a group run the same blocks in the same order, one micro-batch at a time (lanes =
// 1). The factories wrap another one, which makes the layers: local_layers(), tensor_layers(), or
// each other. Losses and gradients agree with one process's within a tolerance: sums over ranks
// change the order of additions. `group` must outlive a factory and everything it made.
#pragma once

#include <memory>

#include "trireme/comm/communicator.h"
#include "trireme/models/layer_factory.h"
#include "trireme/tensor/batch.h"

namespace trireme::inline v0::parallel {

/// Blocks read and write only this rank's positions (context/positions.h); attention is a ring
/// (context/ring_attention.h). A mixture of experts takes a rank's positions for a whole sequence.
std::shared_ptr<const models::LayerFactory> context_layers(
    comm::Communicator& group, std::shared_ptr<const models::LayerFactory> inner);

/// Blocks read only this rank's sequences (own_sequences()). Each of N ranks has E/N of E experts;
/// tokens are sent to the rank of their expert (expert/exchange.h). ConfigError with the
/// arithmetic, when a mixture is made, if N does not divide E.
std::shared_ptr<const models::LayerFactory> expert_layers(
    comm::Communicator& group, std::shared_ptr<const models::LayerFactory> inner);

/// Part `rank` of `ranks` equal parts of every field's samples (dim 0). `count` stays that of the
/// whole micro-batch. ConfigError with the arithmetic if `ranks` does not divide the samples.
MicroBatch own_sequences(const MicroBatch& whole, int rank, int ranks);

}  // namespace trireme::inline v0::parallel
