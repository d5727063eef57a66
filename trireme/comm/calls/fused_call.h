// Calls that run as several operations but count as one in the order of the calls
// (Operation::next): all_reduce_many, and all_to_all_v, which first exchanges its counts.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "trireme/comm/calls/operation.h"
#include "trireme/comm/group_facts.h"

namespace trireme::inline v0::comm {

/// A buffer of at least this many bytes is reduced in place, not packed.
inline constexpr std::size_t kFuseBelow = 1u << 20;
/// The maximum size of a packed buffer.
inline constexpr std::size_t kFusedBytes = 16u << 20;

/// The first step of all_reduce_many, which leads to the others; empty if there is nothing to
/// reduce. `algorithm` returns the algorithm's name for a number of bytes of a type.
std::optional<Operation> fused_call(
    std::span<const Buffer> buffers, ReduceOp op, int rank, int size, const OpOptions& options,
    const std::function<std::string(std::size_t, DType)>& algorithm);

/// An operation that gathers the counts of all ranks and then continues as `all_to_all_v`. Fails
/// with MismatchError on every rank if a pair disagrees. `facts` must outlive the call.
Operation counts_before(Operation all_to_all_v, const GroupFacts& facts);

}  // namespace trireme::inline v0::comm
