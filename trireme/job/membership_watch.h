// MembershipWatch: decides for this process's communicators whether an expired wait continues.
//
// It asks the coordinator what the other ranks do: `timeout` bounds silence, not work
// (docs/architecture.md). It also writes to the status page what this rank does. Thread safe.
#pragma once

#include <memory>

#include "trireme/comm/communicator.h"
#include "trireme/comm/communicator_options.h"
#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/status_page.h"

namespace trireme::inline v0::job {

class MembershipWatch final : public comm::PeerWatch {
 public:
  MembershipWatch(rendezvous::CoordinatorClient& client, rendezvous::StatusPage& status,
                  rendezvous::JudgeOptions options)
      : client_(client), status_(status), options_(options) {}

  /// Prints the stall report if this is the lowest waiting rank.
  Verdict ask(std::string_view operation, Duration waited) override;
  void activity(std::string_view operation, bool waiting) noexcept override;

 private:
  rendezvous::CoordinatorClient& client_;
  rendezvous::StatusPage& status_;
  const rendezvous::JudgeOptions options_;
};

}  // namespace trireme::inline v0::job
