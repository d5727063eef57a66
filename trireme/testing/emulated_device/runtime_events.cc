// Events of the emulated machine (runtime.h).
#include <utility>

#include "trireme/testing/emulated_device/runtime.h"

namespace trireme::inline v0::testing {

RecordedEvent Runtime::record(StreamIndex stream, bool timing) {
  const Lock lock(streams_.mutex());
  check_not_recorded(stream, "an event is recorded on");
  ++stats_.events;
  Stream& of = all_[stream];
  of.known.join(host_knows_);
  RecordedEvent event;
  if (timing) {
    event.time = std::make_shared<std::chrono::steady_clock::time_point>();
    event.point = streams_.push(lock, stream, {"an event", {}, [time = event.time] {
                                                 *time = std::chrono::steady_clock::now();
                                               }});
    of.known.advance(event.point);
  } else {
    event.point = streams_.end_of(stream);
  }
  event.known = of.known;
  return event;
}

void Runtime::block(StreamIndex stream, const RecordedEvent& event) {
  const Lock lock(streams_.mutex());
  check_not_recorded(stream, "an event orders");
  if (waits_to_skip_ > 0 && --waits_to_skip_ == 0) return;
  ++stats_.waits;
  const StreamPoint point = streams_.push(lock, stream, {"a wait", {event.point}, {}});
  all_[stream].known.join(event.known);
  all_[stream].known.advance(point);
}

void Runtime::order(StreamIndex before, StreamIndex after) {
  const Lock lock(streams_.mutex());
  for (const StreamIndex one : {before, after}) check_not_recorded(one, "another stream waits for");
  all_[before].known.join(host_knows_);
  all_[after].known.join(all_[before].known);
  all_[after].known.advance(streams_.push(lock, after, {"a wait", {streams_.end_of(before)}, {}}));
}

void Runtime::synchronize_event(const RecordedEvent& event) {
  int device = 0;
  {
    Lock lock(streams_.mutex());
    ++stats_.synchronisations;
    device = all_[event.point.stream].device;
    streams_.wait(lock, event.point);
    host_knows_.join(event.known);
  }
  throw_error_of(device);
}

void Runtime::note_event_ended_elsewhere() {
  const Lock lock(streams_.mutex());
  ++stats_.events_ended_elsewhere;
}

bool Runtime::query_event(const RecordedEvent& event) {
  Lock lock(streams_.mutex());
  if (!streams_.reached(event.point)) streams_.step(lock);
  if (!streams_.reached(event.point)) return false;
  host_knows_.join(event.known);
  return true;
}

void Runtime::skip_wait(std::uint64_t n) {
  const Lock lock(streams_.mutex());
  waits_to_skip_ = n;
}

}  // namespace trireme::inline v0::testing
