// Executor: runs this rank's part of any schedule, and moves parcels between its passes.
//
// A Send starts and returns, a Recv waits. Receives are posted in the schedule's order, at most two
// ahead of the one that is waited for. Neighbouring stages of one rank pass parcels directly. The
// outputs of a failed pass, or of one whose input failed, are failed parcels and reach all who wait
// for them. So every rank comes to the end of the schedule, and the vote then decides about the
// step. run() throws the communicator's errors, and what Passes throw. One thread at a time.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/comm/communicator.h"
#include "trireme/pipeline/stage_link.h"
#include "trireme/plan/schedule/schedule.h"

namespace trireme::inline v0::parallel {

/// The passes of this rank's stages. They record an error and return a failed parcel. forward() is
/// not called if `in` has failed; the others are. No pass is called for a micro-batch that this
/// pipeline does not have.
class Passes {
 public:
  virtual ~Passes() = default;
  /// The stage's output; empty for the last one.
  virtual Parcel forward(int stage, std::uint32_t micro, Parcel in) = 0;
  /// B: both gradients. `gradients` is empty at the last stage. Returns those of the inputs.
  virtual Parcel backward(int stage, std::uint32_t micro, Parcel gradients) = 0;
  /// I and W: B in two parts.
  virtual Parcel backward_input(int stage, std::uint32_t micro, Parcel gradients) = 0;
  virtual void backward_weight(int stage, std::uint32_t micro) = 0;
  /// Called after every pass F, B, I or W of the schedule, even if it was not run.
  virtual void end_pass(plan::ActionKind pass, int stage, std::uint32_t micro) = 0;
  /// A parcel does not have the agreed layout, and counts as failed.
  virtual void refuse(const std::exception_ptr& error) = 0;
};

using OnPass = std::function<void(const plan::Action&, TimePoint begin, TimePoint end)>;

struct ExecutorOptions {
  comm::Communicator* pipeline = nullptr;  // null: this rank has all stages
  std::vector<int> rank_of_stage;
  at::Device device = at::kCPU;  // of the parcels' tensors
  /// The names of the values that cross from stage s to s + 1.
  std::vector<std::vector<std::string>> values_after;
  /// Called after every pass; may be empty. The times are those of `waiter`.
  OnPass on_pass = nullptr;
  std::shared_ptr<Waiter> waiter = nullptr;
};

class Executor {
 public:
  explicit Executor(ExecutorOptions options);

  /// `schedule` includes its transfers (plan::with_transfers). keys[m] is the form of micro-batch
  /// m, equal for those whose values have the same shapes. This pipeline has no micro-batches
  /// beyond these, and transfers nothing for them.
  void run(const plan::Schedule& schedule, std::span<const std::string> keys, Passes& passes);
  /// Done when everything that run() sent has left its memory.
  Work sent();
  /// Call after a step and sent()'s Work. `good`: all ranks know that the step was good.
  void settle(bool good);

 private:
  int rank() const { return options_.pipeline == nullptr ? 0 : options_.pipeline->rank(); }
  bool is_mine(int stage) const {
    return options_.rank_of_stage[static_cast<std::size_t>(stage)] == rank();
  }
  bool is_last(int stage) const {
    return static_cast<std::size_t>(stage) + 1 == options_.rank_of_stage.size();
  }
  const std::string& key_of(const plan::Action& action) const {
    return keys_[static_cast<std::size_t>(action.microbatch)];
  }
  StageLink& link(bool gradients, int from, int to);
  StageLink& link_of(const plan::Action& receive);
  void post_ahead();
  Parcel take(bool gradient, int stage, int micro);
  void put(bool gradient, int stage, int micro, Parcel parcel);
  void run_one(const plan::Action& action, Passes& passes);
  void run_pass(const plan::Action& action, Passes& passes);
  void run_one_way(const plan::Action& pass, Passes& passes);
  bool is_here(int micro) const { return static_cast<std::size_t>(micro) < keys_.size(); }
  void forward(int stage, int micro, Passes& passes);
  void backward(const plan::Action& pass, Passes& passes);
  void send(const plan::Action& action, Passes& passes);

  ExecutorOptions options_;
  std::map<std::tuple<bool, int, int>, StageLink> links_;  // gradients, from, to
  std::span<const std::string> keys_;
  std::vector<plan::Action> receives_;  // of the schedule under way, in its order
  std::size_t posted_ = 0, received_ = 0;
  // Not used yet. Key: whether it is a gradient; stage and micro-batch of the pass that made it.
  std::map<std::tuple<bool, int, int>, Parcel> parcels_;
};

}  // namespace trireme::inline v0::parallel
