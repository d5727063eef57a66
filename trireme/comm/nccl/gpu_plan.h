// What a GPU is given for one collective, as values: groups of NCCL calls, folds, copies, in the
// order of one stream. Nothing here calls CUDA; pure functions, the same on all ranks.
//
//   reproducible sums     all_to_all of slices, fold by the fixed tree, all_gather of the slices:
//                         2 (R-1)/R S bytes sent a rank of one term, as a ring, and NUMERICS' bits
//   nccl-native           NCCL's own reduction: any order of addition
//   integers              NCCL's own reduction, since every order gives the same bits
//   moves                 NCCL's, or sends and receives in one group
//
// The last elements that do not divide by R, and all of a small call, go to everybody, who folds
// them for itself: one round instead of two.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "trireme/base/dtype.h"
#include "trireme/comm/operation.h"
#include "trireme/kernel/cuda/fold.h"
#include "trireme/kernel/reduce.h"

namespace trireme {
inline namespace v0 {
namespace comm {

struct FoldPlan;

namespace nccl {

/// Names of Operation::algorithm for GPU memory.
inline constexpr std::string_view kFixedTree = "nccl", kNative = "nccl-native";

/// One call of NCCL; `peer`: its root, or the other end.
struct NcclCall {
  enum Kind { AllReduce, Reduce, ReduceScatter, AllGather, Broadcast, Send, Recv } kind = Send;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  int type = 0, op = 0, peer = 0;
};

struct GpuStep {
  enum Kind { Nccl, Fold, Copy, Clear } kind = Nccl;
  std::vector<NcclCall> calls = {};  // Nccl: one group
  std::unique_ptr<kernel::cuda::FoldArguments> fold = nullptr;
  kernel::Combine op = kernel::Combine::Sum;
  DType dtype = DType::F32;
  const void* from = nullptr;  // Copy
  void* to = nullptr;          // Copy, Clear
  std::size_t bytes = 0;
};

/// The group and this rank's place in it.
struct GpuPlace {
  int rank = 0, size = 1;
  const FoldPlan* plan = nullptr;  // of the operation's leaves
};

/// Bytes of work space for a piece of a call; longer calls take several rounds in it.
inline constexpr std::size_t kGpuScratch = 64u << 20;
/// Calls of at most this many bytes, over all terms, are folded by everybody.
inline constexpr std::size_t kFoldEverywhere = 32u << 10;

/// kFixedTree or kNative for a reduction; kFixedTree for all else.
std::string_view gpu_algorithm(const Operation& operation, bool native, bool reproducible);
/// Whether steps_of() will hold a fold; its operands are then at most kernel::cuda::kMostOperands,
/// or this throws ConfigError.
bool needs_fold(const Operation& operation, const GpuPlace& place);
std::size_t scratch_bytes(const Operation& operation, const GpuPlace& place);
std::vector<GpuStep> steps_of(const Operation& operation, const GpuPlace& place,
                              std::byte* scratch);
/// One send or receive of messages between two ranks.
NcclCall message_of(const Operation& operation, int peer);

}  // namespace nccl
}  // namespace comm
}  // namespace v0
}  // namespace trireme
