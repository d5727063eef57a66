// CallTrace: one communicator's collectives as spans of an observe::Trace.
//
//   queued NAME         submitted, and another call is still running (these overlap)
//   communication NAME  the call from its turn to its end; within it `waiting for peers` until all
//                       have called it, `transferring` from then on, and `reducing`: our additions
//   messages NAME       sends and receives, of which several may be under way: from the call to the
//                       end; within it `queued` until the call is begun, `waiting for the peer`
//                       until its header is here, and `transferring`. A sender does not hear when
//                       its message is asked for: it waits until the way to the peer is free, and
//                       what the transport cannot keep is transferring until the peer takes it
//
// A pointer to it is null where no trace is taken. Progress context, except submitted().
#pragma once

#include <memory>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/waiter.h"
#include "trireme/comm/operation.h"
#include "trireme/observe/trace.h"

namespace trireme {
inline namespace v0 {
namespace comm {

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

  /// An addition lasts as long as it lives; null `trace`: nothing happens.
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

}  // namespace comm
}  // namespace v0
}  // namespace trireme
