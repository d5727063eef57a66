// Agreement of all ranks around a step. The entry barrier checks that all ranks are in the same
// step; the vote decides whether all may apply it. Each all-gathers one small record per rank.
//
// The entry barrier is submitted before a step's first bucket, and nobody waits for it. A rank
// whose loop has ended submits `leaving` instead. The others then abort the communicator with an
// UnevenInput that names that rank, before any bucket can hang. If they are in another collective
// (a validation, or one of the user's own), the communicator itself throws that error.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"

namespace trireme::inline v0::parallel {

struct Refusal;
class StepSync;

struct BarrierEntry {
  std::int64_t batch = 0;                // global batches since the start
  std::uint32_t total = 0;               // micro-batches of this batch
  std::optional<ExitCode> leaving = {};  // comm::OpOptions
};

/// Thread safe; returns at once. The Work is done when every rank has entered the same batch.
Work enter_barrier(comm::Communicator& world, const BarrierEntry& entry, const std::string& host);

/// Announces that this rank's loop has ended; waits until every other rank is in its next
/// collective. The announcement arrives even if this rank's transport ends at once. Never throws.
void leave(comm::Communicator& world) noexcept;

/// For a rank that fails with `error` inside a call that the other ranks of `groups` make, too:
/// ends their waits. Breaks all communicators of the job. Never throws.
void give_up(comm::Communicator& world, const std::set<comm::Communicator*>& groups,
             const std::exception_ptr& error) noexcept;

/// A rank's time for its part of a step, without its waits for other ranks.
struct RankTime {
  Duration busy{};                  // since the vote before this one
  Duration passes{};                // forward and backward
  std::uint32_t micro_batches = 0;  // computed in that time
};

struct LocalVote {
  bool ok = true;
  int exit_code = 21;
  std::string reason = {};  // at most 184 bytes are sent
  std::string advice = {};  // what to do about it; at most 120 bytes are sent
  int stop_signal = 0;
  std::int64_t count = 0;  // tokens or samples of this rank
  double squares = 0;      // squared norm of this rank's own gradient (local-step strategies)
  /// A gradient overflowed fp16 (strategy/loss_scale.h). No refusal: all ranks skip the step.
  bool overflow = false;
  bool trains = true;  // a gradient came, or this rank cannot tell
  /// Gradients came of a loss averaged over samples; of one summed over another number of items.
  bool means = false, sums = false;
  /// Learning rates of this rank's update, by parameter group, which must be equal on all ranks;
  /// empty: not compared.
  std::vector<double> rates = {};
  RankTime time = {};

  /// Keeps the first reason only.
  void refuse(int code, const std::string& why, const std::string& what_to_do) {
    if (!ok) return;
    ok = false;
    exit_code = code;
    reason = why;
    advice = what_to_do;
  }
  /// Refuses with what this rank's sync reports.
  void refuse(const Refusal& refusal);
  /// Refuses if a micro-batch's loss is not finite.
  void check_loss(std::uint32_t microbatch, double loss);
  /// Refuses if a learning rate is not finite. `compared`: ranks must have equal rates.
  void take_rates(std::vector<double> own, bool compared);
  /// Refuses for an exception that this rank's code threw, with the exception's advice.
  void refuse(const ErrorReport& report);
  void overflowed(const std::string& why) {
    if (!ok) return;
    overflow = true;
    reason = why;
  }
};

struct Verdict {
  bool ok = true;
  int stop_signal = 0;     // of the lowest rank that has one
  std::int64_t count = 0;  // summed over all ranks
  double squares = 0;      // summed in rank order
  bool overflow = false;   // a rank's gradient overflowed, and no rank refused
  bool trains = false;     // a rank's vote says so
  int refusing_rank = -1;  // lowest that refused; if none did, lowest that overflowed
  int exit_code = 21;
  std::string reason = {}, advice = {};
  std::vector<RankTime> times = {};  // of each rank
};

/// The constructor submits the all-gather; result() waits for it.
class Vote {
 public:
  Vote(comm::Communicator& world, const LocalVote& local_vote);
  Work work() const { return work_; }
  /// Waits. Rethrows the communicator's error.
  Verdict result() const;

 private:
  struct State;
  void compare_rates(Verdict& verdict) const;
  void compare_losses(Verdict& verdict) const;
  std::shared_ptr<State> state_;
  Work work_;
};

/// Advice for a loss or a gradient that is not finite.
inline constexpr const char* kNotFiniteAdvice =
    "lower the learning rate or look at that rank's data";

/// Throws StepRefused with the refusing rank, its reason and advice unless the verdict is ok.
void throw_if_refused(const Verdict& verdict, int rank, const std::string& host, long step);

/// Throws StepRefused (exit code 21) if a gradient's sum holds an infinity or a NaN although every
/// rank's part is finite, naming the first such parameter by `name_of(parameter)`. All ranks find
/// the same one, so all refuse the step without another vote. Reads each owned gradient once.
void refuse_overflow(StepSync& sync, const std::function<std::string(std::size_t)>& name_of,
                     int rank, const std::string& host, long step);

}  // namespace trireme::inline v0::parallel
