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
  /// If set, a whole tensor of as many rows (elements of its first dim) as have been saved: instead of
  /// a write to `local`, load() is called with the saved tensor.
  std::function<void(const at::Tensor& saved)> load = {};
  /// Training does not change it, so that a checkpoint may keep the file of the one before.
  bool frozen = false;
};

/// Everything a Checkpointer saves. Called at a step boundary on every rank.
class Saveable {
 public:
  virtual ~Saveable() = default;
  /// This rank's shards. Replicated tensors are given whole by every rank; one of them is written.
  virtual std::vector<NamedShard> state() = 0;
  /// state() without what parameter servers keep. A rank of an elastic job hands this on in memory, also
  /// while other ranks are lost: communicates with nobody.
  virtual std::vector<NamedShard> own_state() { return state(); }
  /// Whether that is all that is needed to go on with: no if parameter servers have another step's state.
  /// `metadata` is of the same step. Called in the same order on all ranks, before shards are filled.
  virtual bool can_go_on(const std::string& metadata) {
    static_cast<void>(metadata);
    return true;
  }
  /// Small JSON object, equal on all ranks.
  virtual std::string metadata() const = 0;
  /// After every shard of state() was filled; `metadata` as saved.
  virtual void restored(const std::string& metadata) = 0;
};

/// Questions of a Checkpointer to a part whose steps end with a vote of all ranks (Strategy, DataParallel). The
/// answers come from the vote, so they are equal on all ranks.
class StepVoter {
 public:
  virtual ~StepVoter() = default;
  /// 130 or 143 if the last step's vote told all ranks that the job should stop; otherwise 0.
  virtual int stop_signal() const noexcept = 0;
  /// False if some rank does not return from step() between the last step and the next one, because
  /// it has no samples in one of them (job/input_plan.h). A checkpoint then waits for the next
  /// step.
  virtual bool all_ranks_return() const = 0;
  /// Steps that have ended since this object was made: the state is that after them. The last one may
  /// have ended although step() threw, because a rank was lost after the update. nullopt: the state
  /// is that of no step, because a rank was lost between an update and the exchange of weights, or
  /// before servers had it.
  virtual std::optional<std::int64_t> steps_ended() const = 0;
};

/// Throws CheckpointError that names both optimizers if two metadata name different ones under
/// "optimizer". Metadata that name none are accepted. Call it in restored(), and before shards are
/// filled, where the error would otherwise only name a missing tensor.
void require_same_optimizer(const std::string& saved, const std::string& own);

namespace tensor {

/// target.copy_(from), also for an expanded `target`, of whose repeated elements one is written.
void copy_elements(at::Tensor target, at::Tensor from);

/// All of `tensor`, of any strides. Shares its memory if that is contiguous; otherwise `local` is a
/// copy, and load() writes to the tensor. load() throws CheckpointError for a tensor of another shape.
NamedShard whole_shard(const std::string& name, const at::Tensor& tensor);

}  // namespace tensor

}  // namespace trireme::inline v0
