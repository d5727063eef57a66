// One parameter, whole on every rank, where ranks own parts of it (ZeRO): of what is moved along a
// pipeline.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/parameter_store.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

/// `own`: this rank's piece, flat, of the type that `whole` has. Collective over `data`, the ranks
/// that hold the stage: its first ranks are the owners, and give their pieces; those of further
/// copies (hybrid) take alone.
void gather_pieces(comm::Communicator& data, const Ownership& ownership, std::uint32_t parameter,
                   Buffer own, const Buffer& whole, const std::string& label);

/// The whole weights in the compute type. Where they are sharded, a copy, and collective over
/// `data`.
at::Tensor whole_weights(comm::Communicator& data, const ParameterStore& store,
                         std::uint32_t parameter);
/// The other way round: of `whole`, this rank keeps what it has. Not its masters, where they are
/// not the weights.
void keep_weights(const ParameterStore& store, std::uint32_t parameter, const at::Tensor& whole);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
