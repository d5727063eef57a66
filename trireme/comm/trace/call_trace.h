// CallTrace: one communicator's collectives as spans of an observe::Trace.
//
//   queued NAME         the call is submitted, but another one is running (these spans overlap)
//   communication NAME  from the call's turn to its end; divided into `waiting for peers`, until
//                       all ranks have called it, and `transferring`; `reducing` marks additions
//   messages NAME       sends and receives (these overlap), from the call to its end; divided into
//                       `queued`, until the call begins; `waiting for the peer`, until the header
//                       has arrived (a sender: has been sent); and `transferring`. A send ends when
//                       the transport has buffered the data, or else when the peer has taken it
//
// The pointer to a CallTrace is null if no trace is taken. Progress context, except submitted().
#pragma once

#include <memory>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/waiter.h"
#include "trireme/comm/calls/operation.h"
#include "trireme/observe/trace.h"

namespace trireme::inline v0::comm {

struct CallTimes {
  TimePoint submitted{}, begun{}, agreed{};
};

class CallTrace {
 public:
  CallTrace(std::shared_ptr<observe::Trace> trace, std::shared_ptr<Waiter> waiter,
            const std::string& communicator);
  void submitted(CallTimes& times) const { times.submitted = waiter_->now(); }
  void begun(CallTimes& times) const { times.begun = times.agreed = waiter_->now(); }
  void agreed(CallTimes& times) const { times.agreed = waiter_->now(); }
  void finished(const Operation& operation, const CallTimes& times) const;
  /// A send to or receive from `peer` (its rank in the world) has ended.
  void message_finished(const Operation& operation, int peer, const CallTimes& times) const;

  /// Records a `reducing` span for its own lifetime; none if `trace` is null.
  class Reducing {
   public:
    explicit Reducing(const CallTrace* trace);
    ~Reducing();
    Reducing(const Reducing&) = delete;

   private:
    const CallTrace* const trace_;
    const TimePoint begin_;
  };

 private:
  const std::shared_ptr<observe::Trace> trace_;
  const std::shared_ptr<Waiter> waiter_;
  const std::uint32_t queued_, running_, messages_;
};

}  // namespace trireme::inline v0::comm
