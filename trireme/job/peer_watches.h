// Whether a communicator goes on waiting when a wait has expired. Only for job.cc.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/comm/communicator_options.h"
#include "trireme/observe/log.h"
#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/status_page.h"

namespace trireme::inline v0::job {

/// Asks the coordinator what the other ranks do: `timeout` bounds silence, not work
/// (docs/architecture.md). It also writes to the status page what this rank does. Thread safe.
class MembershipWatch final : public comm::PeerWatch {
 public:
  MembershipWatch(rendezvous::CoordinatorClient& client, rendezvous::StatusPage& status,
                  rendezvous::JudgeOptions options)
      : client_(client), status_(status), options_(options) {}

  /// Prints the stall report if this is the lowest waiting rank.
  Verdict ask(std::string_view operation, Duration waited) override {
    try {
      const Duration patience =
          std::clamp<Duration>(options_.timeout, std::chrono::seconds(1), std::chrono::seconds(10));
      const rendezvous::Table table = client_.heartbeat(status_.read(steady_now()), patience);
      const rendezvous::Verdict verdict =
          rendezvous::judge(table, std::string(operation), waited, options_);
      if (verdict.keep_waiting && verdict.speak) observe::info(verdict.explanation);
      return {verdict.keep_waiting, verdict.explanation, verdict.lost_rank};
    } catch (const Error& error) {
      if (client_.returns()) return {true, "the coordinator is away, and waited for", -1};
      return {false, std::string("no answer from the coordinator: ") + error.message(), -1};
    }
  }
  void activity(std::string_view operation, bool waiting) noexcept override {
    status_.set_wait(operation, waiting, steady_now());
  }

 private:
  rendezvous::CoordinatorClient& client_;
  rendezvous::StatusPage& status_;
  const rendezvous::JudgeOptions options_;
};

/// Without a coordinator, nothing tells what peers do: they may be in user code for `patience`.
class PatientWatch final : public comm::PeerWatch {
 public:
  explicit PatientWatch(Duration patience) : patience_(patience) {}
  Verdict ask(std::string_view, Duration waited) override {
    return {.keep_waiting = waited < patience_, .explanation = "a peer is in user code"};
  }
  void activity(std::string_view, bool) noexcept override {}

 private:
  const Duration patience_;
};

}  // namespace trireme::inline v0::job
