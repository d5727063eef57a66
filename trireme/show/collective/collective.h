// Calls one collective, chosen by its kind, through the Communicator's public methods on I64
// elements. Recording and verification use it. Stateless.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/calls/op_kind.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/rounds/registry.h"
#include "trireme/comm/simulate.h"

namespace trireme::inline v0::show {

/// The kind named "all-reduce" or "all_reduce". ConfigError listing the choices.
comm::OpKind kind_named(std::string_view name);
/// The kinds that consist of rounds of messages.
const std::vector<comm::OpKind>& drawn_kinds();
/// The kind's name on the command line, such as "all-reduce".
std::string title_of(comm::OpKind kind);
/// The names of drawn_kinds().
std::vector<std::string> collective_names();
/// The names of their algorithms, registered ones too, each once; and "direct".
std::vector<std::string> algorithm_names();

/// ConfigError listing the choices.
const comm::AlgorithmEntry& entry_named(comm::OpKind kind, std::string_view algorithm);
/// True for the all-reduce in shared memory, which has no rounds and is in no registry.
bool is_direct(comm::OpKind kind, std::string_view algorithm);
/// Broadcast, reduce, gather, scatter.
bool has_root(comm::OpKind kind);
/// The leaves of a sum of one buffer per rank; 1 if nothing is added.
std::uint32_t leaves_of(comm::OpKind kind, int ranks);

/// Calls `kind` on `rank` and waits. `count`: elements of the whole buffer (a multiple of the ranks
/// if each has a piece; for all_to_all, of one rank's input). `value`: this rank's input.
std::vector<std::int64_t> call(comm::SimulatedRank& rank, comm::OpKind kind,
                               std::string_view algorithm, int root, std::size_t count,
                               std::int64_t value);

}  // namespace trireme::inline v0::show
