// The steps of one collective on a GPU, as values: groups of NCCL calls, folds and copies, in the
// order of one stream. Nothing here calls CUDA; pure functions.
//
//   reproducible sums   all_to_all of slices, fold by the fixed tree, all_gather of the slices; the
//                       bits of docs/numerics.md. With one term of S bytes per rank and R ranks, a
//                       rank sends 2 (R-1)/R S bytes, as in a ring
//   nccl-native         NCCL's own reduction: any order of addition
//   integers            NCCL's own reduction, since every order gives the same bits
//   moves               NCCL's own, or sends and receives in one group
//
// The remainder of a division by R, and small calls as a whole, are sent to all ranks, and each
// folds them itself: one round instead of two.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/comm/calls/operation.h"
#include "trireme/kernel/cuda/fold.h"
#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {

struct FoldPlan;

namespace nccl {

/// Values of Operation::algorithm for GPU memory.
inline constexpr std::string_view kFixedTree = "nccl", kNative = "nccl-native";

/// One NCCL call; `peer`: the root, or the other rank of a send or receive.
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

/// This rank, its group and the fold plan for the operation's leaves.
struct GpuPlace {
  int rank, size;
  const FoldPlan& plan;
};

/// Limit of the scratch memory of a call; larger calls run in several rounds.
inline constexpr std::size_t kGpuScratch = 64u << 20;
/// Every rank folds the whole call if all terms together have at most this many bytes.
inline constexpr std::size_t kFoldEverywhere = 32u << 10;

/// kFixedTree or kNative for a reduction; kFixedTree for everything else.
std::string_view gpu_algorithm(const Operation& operation, bool native, bool reproducible);
/// True if some rank needs a fold kernel. ConfigError if the fixed tree has more than
/// kernel::cuda::kMostOperands terms; `name`: this rank's number, which it prints.
bool needs_fold(const Operation& operation, const GpuPlace& place, int name);
std::size_t scratch_bytes(const Operation& operation, const GpuPlace& place);
std::vector<GpuStep> steps_of(const Operation& operation, const GpuPlace& place,
                              std::byte* scratch);
/// The NCCL call of a send or receive operation; `peer`: the other rank in its lane.
NcclCall message_of(const Operation& operation, int peer);

}  // namespace nccl
}  // namespace trireme::inline v0::comm
