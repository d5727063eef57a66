// MpiMeeting: how processes that mpirun started, or that share a caller's MPI_Comm, become one job.
//
// They meet over MPI: rank 0 keeps a coordinator in its own process and tells all where it listens
// and the job's secret; from there on everything is as under `trireme launch`. ConfigError (exit 2)
// where MPI joins another number of processes than mpirun says it started: the mpirun and the
// library belong to different MPIs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/launch/coordinator.h"
#include "trireme/launch/environment.h"
#include "trireme/net/transport.h"

namespace trireme {
inline namespace v0 {
namespace job {

class MpiMeeting {
 public:
  /// Collective over `communicator` (an MPI_Comm*; null: all processes). Fills in `env`: rank,
  /// size, coordinator. `interface`: by which other hosts reach rank 0 (JobOptions). Blocks.
  MpiMeeting(const void* communicator, launch::RankEnvironment& env, const std::string& host,
             Waiter& waiter, Duration timeout, const std::string& interface);

  const std::string& secret() const noexcept { return secret_; }
  /// Collective: a transport over the same processes.
  std::shared_ptr<net::Transport> connect(std::shared_ptr<Waiter> waiter) const;
  /// Rank 0 has left, but keeps the coordinator until the others have, or are silent for `timeout`.
  void stay(Waiter& waiter, Duration timeout) const;

 private:
  void keep_coordinator(const std::vector<std::string>& places, const std::string& host,
                        const std::string& interface);

  const void* const communicator_;
  std::unique_ptr<launch::Coordinator> coordinator_;  // rank 0's
  std::string secret_;
};

/// Programs that have to agree before they are a Job: all processes that mpirun started meet, as a
/// Job would make them (ConfigError). After it, one that exits with a code ends all.
void meet_under_mpirun(const launch::RankEnvironment& env);
/// One text per process.
std::vector<std::string> exchange_under_mpirun(const std::string& mine);

}  // namespace job
}  // namespace v0
}  // namespace trireme
