#include "trireme/comm/trace/call_trace.h"

#include <utility>

namespace trireme::inline v0::comm {

CallTrace::CallTrace(std::shared_ptr<observe::Trace> trace, std::shared_ptr<Waiter> waiter,
                     const std::string& communicator)
    : trace_(std::move(trace)),
      waiter_(std::move(waiter)),
      queued_(trace_->lane("queued " + communicator, observe::Lane::Overlapping)),
      running_(trace_->lane("communication " + communicator)),
      messages_(trace_->lane("messages " + communicator, observe::Lane::Overlapping)) {}

void CallTrace::finished(const Operation& operation, const CallTimes& times) const {
  const TimePoint end = waiter_->now();
  const std::string title = title_of(operation);
  const std::uint64_t bytes = operation.count * size_of(operation.dtype);
  if (times.begun > times.submitted)
    trace_->span(queued_, title, times.submitted, times.begun, bytes);
  trace_->span(running_, title, times.begun, end, bytes);
  trace_->span(running_, "waiting for peers", times.begun, times.agreed);
  trace_->span(running_, "transferring", times.agreed, end);
}

void CallTrace::message_finished(const Operation& operation, int peer,
                                 const CallTimes& times) const {
  const TimePoint end = waiter_->now();
  const std::uint16_t group = trace_->new_group();
  std::string title(name_of(operation.kind));
  title += (operation.kind == OpKind::Send ? " to " : " from ") + std::to_string(peer);
  if (!operation.label.empty()) title += " " + operation.label;
  const std::uint64_t bytes = operation.count * size_of(operation.dtype);
  trace_->span(messages_, title, times.submitted, end, bytes, group);
  const auto part = [&](std::string_view name, TimePoint from, TimePoint to) {
    if (to > from) trace_->span(messages_, name, from, to, 0, group);
  };
  part("queued", times.submitted, times.begun);
  part("waiting for the peer", times.begun, times.agreed);
  part("transferring", times.agreed, end);
}

CallTrace::Reducing::Reducing(const CallTrace* trace)
    : trace_(trace), begin_(trace ? trace->waiter_->now() : TimePoint{}) {}

CallTrace::Reducing::~Reducing() {
  if (trace_) trace_->trace_->span(trace_->running_, "reducing", begin_, trace_->waiter_->now());
}

}  // namespace trireme::inline v0::comm
