// Heartbeat: the thread that tells the coordinator ten times per `timeout` what this rank does.
#pragma once

#include <thread>

#include "trireme/base/event.h"
#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/status_page.h"

namespace trireme::inline v0::rendezvous {

class Heartbeat {
 public:
  Heartbeat(rendezvous::CoordinatorClient& client, rendezvous::StatusPage& status,
            Duration timeout);
  ~Heartbeat();  // ends the thread

 private:
  void loop();
  rendezvous::CoordinatorClient& client_;
  rendezvous::StatusPage& status_;
  const Duration interval_;
  Event stop_;
  std::thread thread_;
};

}  // namespace trireme::inline v0::rendezvous
