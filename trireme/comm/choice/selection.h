// Selection: which algorithm runs a call, from the name that the call gives, or else the
// communicator's:
//
//     auto           the fastest by measurement or cost formula (choice.h)
//     direct         through memory that the ranks share (comm/shared/direct_base.h)
//     NAME           a registered algorithm of rounds (registry.h)
//     mpi-native     the network's own reduction (native_backend.cc)
//     nccl-native    on a GPU, NCCL's own reduction (gpu_plan.h); on the CPU, as auto
//
// Depends only on the call, the group and the transport, so all ranks select the same. Thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/comm/choice/choice.h"
#include "trireme/comm/communicator.h"

namespace trireme::inline v0::comm {

inline constexpr std::string_view kMpiNative = "mpi-native";

/// The operands of an all-reduce.
struct Reduced {
  ReduceOp op = ReduceOp::Sum;
  DType dtype = DType::F32;
  std::size_t bytes = 0;
  std::uint32_t total = 1;  // leaves
};

class Selection {
 public:
  /// ConfigError if the communicator's algorithm is impossible here. `engine` must outlive this.
  explicit Selection(Engine& engine);
  /// ConfigError if `wanted` (empty: the communicator's algorithm) is impossible.
  std::string all_reduce(std::string_view wanted, const Reduced& what) const;
  /// The algorithm of another collective; `usual` if `wanted` is empty or "auto". ConfigError if
  /// `wanted` is unknown.
  std::string pick(OpKind kind, std::string_view wanted, std::string_view usual) const;
  /// True if the call may be direct where ranks can read one another's memory.
  bool may_be_direct(OpKind kind, std::string_view wanted) const;
  const Chooser& chooser() const noexcept { return chooser_; }

 private:
  std::string why_not_native(const Reduced& what) const;

  Engine& engine_;
  const Chooser chooser_;
};

/// True if `kind` has a direct form that needs Arenas::can_read(). The direct form of an all_reduce
/// does not need it.
bool has_direct_form(OpKind kind) noexcept;

/// The group that is to run an all-reduce.
struct AllReducePlace {
  int ranks = 1;
  std::string_view transport;
  bool can_map = false;  // ranks can map one another's memory
  int rank = -1;         // for the error; -1: none
};
/// `wanted`: a registered algorithm, "auto", "direct", "mpi-native" or "nccl-native". Throws
/// ConfigError if it is unknown or needs another transport. Does not check whether MPI can reduce.
void check_all_reduce(std::string_view wanted, const AllReducePlace& place);

/// The algorithm of groups made from a communicator whose algorithm is `algorithm`.
std::string algorithm_of_groups(std::string_view algorithm);

}  // namespace trireme::inline v0::comm
