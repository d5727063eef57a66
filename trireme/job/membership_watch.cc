#include "trireme/job/membership_watch.h"

#include <algorithm>
#include <string>

#include "trireme/base/error.h"
#include "trireme/observe/log.h"

namespace trireme::inline v0::job {

comm::PeerWatch::Verdict MembershipWatch::ask(std::string_view operation, Duration waited) {
  const std::string name(operation);
  try {
    const Duration patience =
        std::clamp<Duration>(options_.timeout, std::chrono::seconds(1), std::chrono::seconds(10));
    const rendezvous::Table table = client_.heartbeat(status_.read(steady_now()), patience);
    const rendezvous::Verdict verdict = rendezvous::judge(table, name, waited, options_);
    if (verdict.keep_waiting && verdict.speak) observe::info(verdict.explanation);
    return {verdict.keep_waiting, verdict.explanation, verdict.lost_rank};
  } catch (const Error& error) {
    if (client_.returns()) return {true, "the coordinator is away, and waited for", -1};
    return {false, std::string("no answer from the coordinator: ") + error.message(), -1};
  }
}

void MembershipWatch::activity(std::string_view operation, bool waiting) noexcept {
  status_.set_wait(operation, waiting, steady_now());
}

}  // namespace trireme::inline v0::job
