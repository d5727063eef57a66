// MembershipWatch: decides for this process's communicators whether an expired wait continues.
//
// It asks the coordinator what the other ranks do: `timeout` bounds silence, not work
// (docs/architecture.md). It also writes to the status page what this rank does. Thread safe.
#pragma once

#include <memory>

#include "trireme/comm/communicator.h"
#include "trireme/launch/client.h"
#include "trireme/launch/status_page.h"

namespace trireme::inline v0::job {

class MembershipWatch final : public comm::PeerWatch {
 public:
  MembershipWatch(launch::CoordinatorClient& client, launch::StatusPage& status,
                  launch::JudgeOptions options)
      : client_(client), status_(status), options_(options) {}

  /// Prints the stall report if this is the lowest waiting rank.
  Verdict ask(std::string_view operation, Duration waited) override;
  void activity(std::string_view operation, bool waiting) noexcept override;

 private:
  launch::CoordinatorClient& client_;
  launch::StatusPage& status_;
  const launch::JudgeOptions options_;
};

}  // namespace trireme::inline v0::job
