// Heartbeat: the thread that tells the coordinator ten times per `timeout` what this rank does.
#pragma once

#include <algorithm>
#include <exception>
#include <thread>

#include "trireme/base/event.h"
#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/status_page.h"

namespace trireme::inline v0::rendezvous {

class Heartbeat {
 public:
  Heartbeat(CoordinatorClient& client, StatusPage& status, Duration timeout)
      : thread_([this, &client, &status,
                 interval = client.heartbeat_interval(
                     std::max<Duration>(timeout / 10, std::chrono::milliseconds(10)))] {
          do {
            try {
              client.beat(status.read(steady_now()), 2 * interval);
            } catch (const std::exception&) {
              // A lost heartbeat, even for lack of memory, is harmless: the watch stream tells if
              // the coordinator is lost.
            }
          } while (!stop_.wait(interval));
        }) {}
  ~Heartbeat() {
    stop_.set();
    thread_.join();
  }

 private:
  Event stop_;
  std::thread thread_;
};

}  // namespace trireme::inline v0::rendezvous
