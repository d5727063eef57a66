// One collective by its kind, called through the Communicator's public methods on elements of I64:
// what a recording and a verification run. Stateless.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/op_kind.h"
#include "trireme/comm/registry.h"
#include "trireme/comm/simulate.h"

namespace trireme {
inline namespace v0 {
namespace show {

/// "all-reduce" or "all_reduce". ConfigError that lists what there is.
comm::OpKind kind_named(std::string_view name);
/// Those that are made of rounds of messages.
const std::vector<comm::OpKind>& drawn_kinds();
/// "all-reduce": as the command line says it.
std::string title_of(comm::OpKind kind);

/// ConfigError that lists what there is.
const comm::AlgorithmEntry& entry_named(comm::OpKind kind, std::string_view algorithm);
/// The all-reduce in shared memory, which is no program of rounds and in no registry.
bool is_direct(comm::OpKind kind, std::string_view algorithm);
/// Broadcast, reduce, gather, scatter.
bool has_root(comm::OpKind kind);
/// Leaves of the sum over `ranks` plain buffers; 1 where nothing is added.
std::uint32_t leaves_of(comm::OpKind kind, int ranks);

/// Calls `kind` on `rank` and waits for it. `count`: elements of the whole (a multiple of the ranks
/// where each has a piece; all_to_all: of one rank's in). `value`: what this rank brings.
std::vector<std::int64_t> call(comm::SimulatedRank& rank, comm::OpKind kind,
                               std::string_view algorithm, int root, std::size_t count,
                               std::int64_t value);

}  // namespace show
}  // namespace v0
}  // namespace trireme
