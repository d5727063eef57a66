// MpiMeeting: joins processes that mpirun started, or that share a caller's MPI_Comm, to one job.
//
// They meet over MPI. Rank 0 runs a coordinator in its process and sends its address and the job's
// secret to all ranks. The rest is as under `trireme launch`. Throws ConfigError (exit code 2) if
// MPI joins another number of processes than mpirun started (they belong to different MPIs).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/net/transport.h"
#include "trireme/rendezvous/coordinator/coordinator.h"
#include "trireme/rendezvous/launchers/environment.h"

namespace trireme::inline v0::rendezvous {

class MpiMeeting {
 public:
  /// Collective over `communicator` (an MPI_Comm*; null: all processes). Sets rank, size and
  /// coordinator in `env`. Other hosts reach rank 0 by `interface` (JobOptions). Blocks.
  MpiMeeting(const void* communicator, RankEnvironment& env, const std::string& host,
             Waiter& waiter, Duration timeout, const std::string& interface);

  const std::string& secret() const noexcept { return secret_; }
  /// Collective: makes a transport over the same processes.
  std::shared_ptr<net::Transport> connect(std::shared_ptr<Waiter> waiter) const;
  /// Called when this rank has left. On rank 0, keeps the coordinator until the other ranks have
  /// left or have been silent for `timeout`.
  void stay(Waiter& waiter, Duration timeout) const;

 private:
  void keep_coordinator(const std::vector<std::string>& places, const std::string& host,
                        const std::string& interface);

  const void* const communicator_;
  std::unique_ptr<Coordinator> coordinator_;  // on rank 0
  std::string secret_;
};

/// Joins all processes of an mpirun before they make a Job; throws ConfigError like a Job.
/// Afterwards a process that exits with an error code ends all.
void meet_under_mpirun(const RankEnvironment& env);
/// Returns one text per process.
std::vector<std::string> exchange_under_mpirun(const std::string& mine);

}  // namespace trireme::inline v0::rendezvous
