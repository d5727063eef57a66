#include "trireme/rendezvous/heartbeat.h"

#include <algorithm>
#include <exception>

namespace trireme::inline v0::rendezvous {

Heartbeat::Heartbeat(rendezvous::CoordinatorClient& client, rendezvous::StatusPage& status,
                     Duration timeout)
    : client_(client),
      status_(status),
      interval_(client.heartbeat_interval(
          std::max<Duration>(timeout / 10, std::chrono::milliseconds(10)))),
      thread_([this] { loop(); }) {}

Heartbeat::~Heartbeat() {
  stop_.set();
  thread_.join();
}

void Heartbeat::loop() {
  do {
    try {
      client_.heartbeat(status_.read(steady_now()), 2 * interval_);
    } catch (const std::exception&) {
      // A lost heartbeat, even for lack of memory, is harmless: the watch stream tells if the
      // coordinator is lost.
    }
  } while (!stop_.wait(interval_));
}

}  // namespace trireme::inline v0::rendezvous
