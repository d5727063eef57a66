// Saveable state: named tensors, each a shard of a global one, and a small JSON text for everything
// else (step, positions, random streams).
//
// It is here so that parallel, input and checkpoint can share it without including one another.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/buffer.h"

namespace trireme::inline v0 {

/// The row-major interval [begin, end) of a tensor of global `shape`. `local` has end-begin
/// elements (any shape), is contiguous, and is read on save and written in place on load.
struct NamedShard {
  std::string name;
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;
  at::Tensor local;
  /// If set, loading does not write to `local`, but calls load() with the whole saved tensor. The
  /// saved number of rows (first dim) may differ from `shape`.
  std::function<void(const at::Tensor& saved)> load = {};
  /// Training does not change the tensor, so a checkpoint may keep the previous checkpoint's file.
  bool frozen = false;
  /// Loading leaves it as it is if the checkpoint lacks it. Copies in memory lack no such tensor.
  bool optional = false;
  /// The tensor has a row (of the first dim) for each rank, and this is this rank's. If the saved
  /// one has another number of rows, rank r of n gets the sum of rows r, r + n, ..., or zeros.
  bool row_of_rank = false;
};

/// Names of the state of gradient compression begin so. A checkpoint that has it loads into a run
/// without it, and the reverse; an elastic job may go on without it.
inline constexpr std::string_view kCompressionPrefix = "compression/";

/// Everything a Checkpointer saves. Called at a step boundary on every rank.
class Saveable {
 public:
  virtual ~Saveable() = default;
  /// This rank's shards. Replicated tensors are given whole by every rank; one of them is written.
  virtual std::vector<NamedShard> state() = 0;
  /// state() without what parameter servers keep. Does not communicate: a rank of an elastic job
  /// hands this on in memory, also while other ranks are lost.
  virtual std::vector<NamedShard> own_state() { return state(); }
  /// Whether own_state() is enough to go on; false if parameter servers have another step's state.
  /// `metadata` is of the same step as that state. Called in the same order on all ranks, before
  /// shards are filled.
  virtual bool can_go_on(const std::string& metadata) {
    static_cast<void>(metadata);
    return true;
  }
  /// Small JSON object, equal on all ranks.
  virtual std::string metadata() const = 0;
  /// After every shard of state() was filled; `metadata` as saved.
  virtual void restored(const std::string& metadata) = 0;
};

/// A Checkpointer's questions to an object whose steps end with a vote of all ranks (Strategy,
/// DataParallel). The answers come from the vote, so they are equal on all ranks.
class StepVoter {
 public:
  virtual ~StepVoter() = default;
  /// 130 or 143 if the last step's vote told all ranks that the job should stop; otherwise 0.
  virtual int stop_signal() const noexcept = 0;
  /// False if some rank does not return from step() between the last step and the next one, because
  /// it has no samples in one of them (job/input_plan.h). A checkpoint then waits for a later step.
  virtual bool all_ranks_return() const = 0;
  /// The number of steps that have ended since this object was made; the state is the one after
  /// them. The last one may have ended although step() threw, because a rank was lost after the
  /// update. nullopt: the state belongs to no step, because a rank was lost between an update and
  /// the exchange of weights, or before servers had the update.
  virtual std::optional<std::int64_t> steps_ended() const = 0;
};

/// Throws CheckpointError that names both optimizers if two metadata name different ones under
/// "optimizer". Metadata that name none are accepted. Call it in restored(), and before shards are
/// filled, where the error would otherwise only name a missing tensor.
void require_same_optimizer(const std::string& saved, const std::string& own);

namespace tensor {

/// target.copy_(from). `target` may be expanded: then each repeated element is written once.
void copy_elements(at::Tensor target, at::Tensor from);

/// All of `tensor`, of any strides. `local` is a contiguous tensor itself; for others it is a copy,
/// and load() writes to the tensor. load() throws CheckpointError for a tensor of another shape.
NamedShard whole_shard(const std::string& name, const at::Tensor& tensor);

}  // namespace tensor

}  // namespace trireme::inline v0
