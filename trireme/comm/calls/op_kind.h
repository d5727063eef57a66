// OpKind: the kind of a call: which collective, or a message.
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme::inline v0::comm {

enum class OpKind : std::uint8_t {
  AllReduce,
  Reduce,
  ReduceScatter,
  AllGather,
  Gather,
  Scatter,
  Broadcast,
  AllToAll,
  Barrier,
  Send,
  Recv,
  Allocate,  // internal: announces memory that all ranks have allocated
  SparseAllReduce,
};

/// "all_reduce", "broadcast", ...
std::string_view name_of(OpKind kind) noexcept;

}  // namespace trireme::inline v0::comm
