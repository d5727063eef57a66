// Gathers one parameter of a pipeline stage on every rank of the stage, if ranks own parts (ZeRO).
#pragma once

#include <cstdint>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/sync/gathers/parameter_store.h"

namespace trireme::inline v0::parallel {

/// `own`: this rank's piece, flat, in the type of `whole`. Collective over `data`, the ranks that
/// hold the stage. The first ranks of `data` are the owners and send their pieces; ranks of further
/// replicas (hybrid) only receive.
void gather_pieces(comm::Communicator& data, const Ownership& ownership, std::uint32_t parameter,
                   Buffer own, const Buffer& whole, const std::string& label);

/// The whole weights in the compute type. If they are sharded: a copy, and collective over `data`.
at::Tensor whole_weights(comm::Communicator& data, const ParameterStore& store,
                         std::uint32_t parameter);
/// The inverse: copies this rank's elements of `whole` into its weights. Does not change master
/// weights that are stored separately.
void keep_weights(const ParameterStore& store, std::uint32_t parameter, const at::Tensor& whole);

}  // namespace trireme::inline v0::parallel
