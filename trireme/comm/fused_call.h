// Calls of several steps that hold one place in the order of the calls (Operation::next): the fused
// all_reduce, and the exchange of counts before all_to_all_v. Run in the progress context.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/operation.h"

namespace trireme {
inline namespace v0 {
namespace comm {

/// A buffer of at least this many bytes is reduced where it lies, not packed.
inline constexpr std::size_t kFuseBelow = 1u << 20;
/// Bytes that one packed buffer holds at most.
inline constexpr std::size_t kFusedBytes = 16u << 20;

/// The steps of all_reduce_many; empty for no buffers. `algorithm`: its name for so many bytes of
/// a type.
std::optional<Operation> fused_call(
    std::span<const Buffer> buffers, ReduceOp op, int rank, int size, const OpOptions& options,
    const std::function<std::string(std::size_t, DType)>& algorithm);

/// A step in which all ranks learn all counts of `all_to_all_v`, then that one. MismatchError on
/// every rank where a pair disagrees; `names`: the numbers by which it names the ranks.
Operation counts_before(Operation all_to_all_v, std::vector<int> names);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
