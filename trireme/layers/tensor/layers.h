// The LayerFactory of tensor parallelism (Shoeybi et al. 2019, "Megatron-LM", arXiv:1909.08053):
// linear layers cut by columns and by rows, attention by heads, tables and cross-entropy by
// vocabulary. There is one all-reduce after each Cut::Rows in forward and one before each
// Cut::Columns in backward. With `sequence` these are a reduce-scatter and an all-gather, and norms
// and residual streams are cut along the sequence (Korthikanti et al. 2022, arXiv:2205.05198).
//
// Initial values are one process's: each rank cuts them out of the whole tensor. Sums over ranks
// change the order of additions, so weights agree within a tolerance, not in every bit. Parameters
// that every rank has whole stay equal on all of them, bit for bit.
#pragma once

#include <memory>

#include "trireme/comm/communicator.h"
#include "trireme/models/layer_factory.h"

namespace trireme::inline v0::parallel {

/// `group` outlives the factory and everything built from it. ConfigError with the arithmetic, from
/// its methods, where the ranks do not divide a layer's columns, rows or heads.
std::shared_ptr<const models::LayerFactory> tensor_layers(comm::Communicator& group, bool sequence);

}  // namespace trireme::inline v0::parallel
