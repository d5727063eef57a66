// SocketMeeting: joins processes to one job that srun, torchrun or a TFJob started. These launchers
// assign ranks but provide no means of communication.
//
// Rank 0 runs a coordinator in its process. On one host the other ranks ask rank 0 for the
// coordinator's address and the job's secret, over an abstract Unix socket named after the start;
// the kernel proves that both ends belong to one user. On several hosts the user provides the
// secret (TRIREME_JOB_SECRET_FILE, otherwise ConfigError). The coordinator then listens on the
// first free port of a list (the place's own, then ones derived from the start's name), and the
// others try these ports in turn until one proves the secret. The rest is as under `trireme
// launch`. Processes may meet again if all do.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/observe/wait_notice.h"
#include "trireme/rendezvous/coordinator/coordinator.h"
#include "trireme/rendezvous/launchers/environment.h"

namespace trireme::inline v0::rendezvous {

class SocketMeeting {
 public:
  /// Sets `env.coordinator`. Ranks other than 0 wait for it up to `timeout` (TimeoutError), and log
  /// the wait (observe/wait_notice.h).
  SocketMeeting(RankEnvironment& env, const std::shared_ptr<Waiter>& waiter, Duration timeout,
                const std::string& interface);
  ~SocketMeeting();
  SocketMeeting(const SocketMeeting&) = delete;

  const std::string& secret() const noexcept { return secret_; }
  /// For an exchange among all: while the result lives, the first process of each host logs for
  /// whom it waits. Null for other processes.
  std::unique_ptr<observe::WaitNotice> wait_for_all(const RankEnvironment& env) const;
  /// Called when this process has left. On rank 0, keeps the coordinator until the other workers
  /// have left or been silent for `timeout`, tells servers and the evaluator, and waits at most
  /// `patience` for them.
  void stay(Waiter& waiter, Duration timeout, Duration patience) const;

 private:
  class Responder;
  CoordinatorOptions options_for(const RankEnvironment& env, const std::string& name) const;
  void open_on_one_host(const RankEnvironment& env, const std::string& name);
  void open_to_all(const RankEnvironment& env, const std::string& name);
  class Wait;
  void ask_on_this_host(RankEnvironment& env, const std::string& name, Wait& wait);
  void search(RankEnvironment& env, const std::string& name, Wait& wait);

  const std::shared_ptr<Waiter> waiter_;
  std::string secret_;
  std::unique_ptr<Coordinator> coordinator_;  // on rank 0
  std::shared_ptr<Responder> responder_;      // on rank 0 of a job on one host
};

/// For programs before they make a Job: returns one text per worker and server of the start.
std::vector<std::string> exchange_by_sockets(const RankEnvironment& env, const std::string& mine,
                                             Duration timeout);

/// The evaluator, which may come late, calls this instead. Its next meeting throws PeerLost if rank
/// 0 is not there and `is_over` (called often) says that the training has ended.
void skip_meeting(std::function<bool()> is_over);

}  // namespace trireme::inline v0::rendezvous
