// MembershipWatch: what the communicators of this process ask when a wait runs out.
//
// It asks the coordinator what the other ranks do (DESIGN 7: `timeout` bounds silence, not work)
// and notes in the status page what this rank does. Thread safe.
#pragma once

#include <memory>

#include "trireme/comm/communicator.h"
#include "trireme/launch/client.h"
#include "trireme/launch/status_page.h"

namespace trireme {
inline namespace v0 {
namespace job {

class MembershipWatch final : public comm::PeerWatch {
 public:
  MembershipWatch(launch::CoordinatorClient& client, launch::StatusPage& status,
                  launch::JudgeOptions options)
      : client_(client), status_(status), options_(options) {}

  /// Prints the line of DESIGN 7 where this is the lowest rank that waits.
  Verdict ask(std::string_view operation, Duration waited) override;
  void activity(std::string_view operation, bool waiting) noexcept override;

 private:
  launch::CoordinatorClient& client_;
  launch::StatusPage& status_;
  const launch::JudgeOptions options_;
};

}  // namespace job
}  // namespace v0
}  // namespace trireme
