// LocalSync: a rank trains its own copy of the model on its own share of each batch, and the copies
// come together by a Mixer every H steps (local SGD, Stich 2019, arXiv:1805.09767, and relatives).
//
//     step          1     2     3     4     5     6     7     8       H = 4
//     rank 0     .  x1 -> x2 -> x3 -> x4 \ /-> x5 -> x6 ->  ...   \ /
//     rank 1     .  x1 -> x2 -> x3 -> x4 / \-> x5 -> x6 ->  ...   / \      / \: mix()
//
// A local step's gradient is N/count x the sum over this rank's own samples (count: the samples of
// all N ranks), so that the mean over the ranks is the gradient of the whole batch even if shares
// are uneven. A rank without a share has a gradient of zero. Each rank clips by its own norm:
// chunk_squares() of a local step are those of its own gradient. The first steps may be synchronous
// (LocalOptions::post_local_after): then this is PlainSync.
//
// The entry barrier, the vote and the loss of every step (a few hundred bytes) are as under plain,
// so a step is refused by all ranks or by none. Checkpoints call meet() and validations show().
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trireme/decentralised/mixer.h"
#include "trireme/sync/levels/plain_sync.h"

namespace trireme::inline v0::parallel {

class LocalSync final : public PlainSync {
 public:
  /// `steps_done`: returns the number of updates since the start of the training.
  LocalSync(const SyncSetup& setup, std::unique_ptr<Mixer> mixer, const LocalOptions& options,
            std::function<std::int64_t()> steps_done);
  /// Called once, before the first step. Fills in `replica`'s scratch. `refresh` is called after
  /// every change of the masters by this object.
  void attach(Replica replica, std::function<void()> refresh);

  /// Whether the step that begin() announced is a local one.
  bool local() const noexcept { return local_; }
  /// All ranks go on from the same weights: before a checkpoint. Collective.
  void meet();
  /// Weights and moments were written from a checkpoint.
  void restored();
  std::vector<NamedShard> state() { return mixer_->state(); }
  /// While the result lives, the weights are those of the model that all ranks train together,
  /// equal on all of them; then this rank's own are restored. Collective.
  std::shared_ptr<void> show();

  void begin(std::uint32_t total, std::span<const Use> order) override;
  Work publish() override;

 private:
  std::unique_ptr<Mixer> mixer_;
  LocalOptions local_options_;
  std::function<std::int64_t()> steps_done_;
  Replica replica_;
  std::function<void()> refresh_;
  bool local_ = false;    // the step under way
  bool started_ = false;  // the mixer knows that local steps have begun
  bool together_ = true;  // weights, moments and buffers are equal on all ranks
  bool mixed_ = false;    // mix() came after the last step
};

}  // namespace trireme::inline v0::parallel
