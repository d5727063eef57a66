// SocketMeeting: how processes become one job that srun or torchrun started, which give them their
// ranks but nothing to talk over.
//
// Rank 0 keeps a coordinator in its own process. On one host the others ask it for the
// coordinator's address and the job's secret at an abstract Unix socket named after the start; the
// kernel says that both ends are one user's. On several hosts the secret is the user's
// (TRIREME_JOB_SECRET_FILE, else ConfigError), and the coordinator is at the first free of some
// ports that follow from the start's name: the others try them in turn and take the one that proves
// the secret of this start. From there on everything is as under `trireme launch`. A process may
// meet again, as often as all others do.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/launch/coordinator.h"
#include "trireme/launch/environment.h"

namespace trireme {
inline namespace v0 {
namespace job {

class SocketMeeting {
 public:
  /// Fills in `env.coordinator`. Ranks other than 0 wait for it up to `timeout` (TimeoutError).
  SocketMeeting(launch::RankEnvironment& env, const std::shared_ptr<Waiter>& waiter,
                Duration timeout, const std::string& interface);
  ~SocketMeeting();
  SocketMeeting(const SocketMeeting&) = delete;

  const std::string& secret() const noexcept { return secret_; }
  /// Rank 0 has left, but keeps the coordinator until the others have, or are silent for `timeout`.
  void stay(Waiter& waiter, Duration timeout) const;

 private:
  class Door;
  void open_on_one_host(const launch::RankEnvironment& env, const std::string& name);
  void open_to_all(const launch::RankEnvironment& env, const std::string& name);
  void ask_on_this_host(launch::RankEnvironment& env, const std::string& name, TimePoint deadline);
  void search(launch::RankEnvironment& env, const std::string& name, TimePoint deadline);

  const std::shared_ptr<Waiter> waiter_;
  std::string secret_;
  std::unique_ptr<launch::Coordinator> coordinator_;  // rank 0's
  std::shared_ptr<Door> door_;                        // rank 0's, on one host
};

/// Before they are a Job: one text per process of a start that meets by sockets.
std::vector<std::string> exchange_by_sockets(const launch::RankEnvironment& env,
                                             const std::string& mine, Duration timeout);

}  // namespace job
}  // namespace v0
}  // namespace trireme
