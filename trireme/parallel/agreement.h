// What the ranks agree on around a step, apart from numbers: that all of them are in it (the gate)
// and that all of them may apply it (the vote). Two all-gathers of one small record per rank.
//
// The gate is submitted before a step's first bucket and not waited for. A rank whose loop has
// ended submits `leaving` instead; the others then fail at once with UnevenInput naming it, since
// the communicator is aborted with that error before any bucket can hang. Where they are in another
// collective (a validation, one of the user's own), the communicator itself says so.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>

#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

struct Refusal;

struct GateEntry {
  std::int64_t batch = 0;   // global batches since the start
  std::uint32_t total = 0;  // micro-batches of this one
  bool leaving = false;
};

/// Any thread; returns at once. The Work is done when every rank has entered the same batch.
Work enter_gate(comm::Communicator& world, const GateEntry& entry, const std::string& host);

/// This rank's loop has ended: says so, and waits until every other rank has heard it. Never
/// throws.
void leave(comm::Communicator& world) noexcept;

/// This rank ends in the middle of a call that the others of these groups are in, or come to: ends
/// their waits. All communicators of the job are broken afterwards. Never throws.
void give_up(comm::Communicator& world, std::span<comm::Communicator* const> groups,
             const std::exception_ptr& error) noexcept;

struct Ballot {
  bool ok = true;
  int exit_code = 21;
  std::string reason = {};  // at most 184 bytes travel
  std::string advice = {};  // what to do about it; at most 120 bytes travel
  int stop_signal = 0;
  std::int64_t count = 0;  // tokens or samples of this rank
  double squares = 0;      // squared norm of this rank's own gradient, where it has one
  double loss = 0;         // summed over `count`, where it is told here; a NaN: not known
  /// A gradient did not fit into fp16 (parallel/loss_scale.h): no refusal, the step is left out.
  bool overflow = false;

  /// The first reason counts.
  void refuse(int code, const std::string& why, const std::string& what_to_do) {
    if (!ok) return;
    ok = false;
    exit_code = code;
    reason = why;
    advice = what_to_do;
  }
  /// What this rank's sync saw wrong.
  void refuse(const Refusal& refusal);
  /// A micro-batch's loss that is not finite.
  void check_loss(std::uint32_t microbatch, double loss);
  /// What this rank's own code threw, with the exception's advice.
  void refuse(const ErrorReport& report);
  void overflowed(const std::string& why) {
    if (!ok) return;
    overflow = true;
    reason = why;
  }
};

struct Verdict {
  bool ok = true;
  int stop_signal = 0;     // the lowest rank's that has one
  std::int64_t count = 0;  // of all ranks
  double squares = 0;      // added in the ranks' order
  double loss = 0;         // the same
  bool overflow = false;   // some rank's, and none refused
  int refusing_rank = -1;  // the lowest; without a refusal, the lowest that overflowed
  int exit_code = 21;
  std::string reason = {}, advice = {};
};

/// Submitted at once; result() waits.
class Vote {
 public:
  Vote(comm::Communicator& world, const Ballot& ballot);
  Work work() const { return work_; }
  /// Waits. Rethrows the communicator's error.
  Verdict result() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  Work work_;
};

/// What to do about a loss or a gradient that is not finite.
inline constexpr const char* kNotFiniteAdvice =
    "lower the learning rate or look at that rank's data";

/// Throws StepRefused naming rank, reason and the refusing rank's advice unless the verdict is ok.
void throw_if_refused(const Verdict& verdict, const comm::Communicator& world,
                      const std::string& host, long step);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
