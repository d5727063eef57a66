// Heartbeat: the thread that tells the coordinator ten times per `timeout` what this rank does.
#pragma once

#include <thread>

#include "trireme/base/event.h"
#include "trireme/launch/client.h"
#include "trireme/launch/status_page.h"

namespace trireme::inline v0::job {

class Heartbeat {
 public:
  Heartbeat(launch::CoordinatorClient& client, launch::StatusPage& status, Duration timeout);
  ~Heartbeat();  // ends the thread

 private:
  void loop();
  launch::CoordinatorClient& client_;
  launch::StatusPage& status_;
  const Duration interval_;
  Event stop_;
  std::thread thread_;
};

}  // namespace trireme::inline v0::job
