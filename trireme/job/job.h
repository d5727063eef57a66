// Job: this process's membership in a distributed run. The constructor joins, the destructor
// leaves.
//
// A process that a launcher started (docs/clusters.md lists them) is one rank of n; a process
// started alone is a job of one rank. No LibTorch. One Job per process; its accessors are const and
// thread safe. A failure to join throws; a lost peer breaks the communicators with PeerLost. The
// constructor installs a terminate handler, so an exception that leaves the user's main also ends
// with the documented exit code.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/base/buffer.h"
#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"
#include "trireme/rendezvous/roles.h"

namespace trireme::inline v0 {

namespace observe {
class Trace;
}
namespace plan {
class Tuning;
}
namespace rendezvous {
struct Epoch;
}

class JobChanges;
class JobInput;
class JobServers;
class Waiter;

struct JobOptions {
  /// auto | shm | tcp | mixed | mpi | nccl (TRIREME_COMM_TRANSPORT). nccl: each rank has a GPU,
  /// whose memory is sent over NCCL; CPU memory and control messages go as with auto.
  std::string transport = "auto";
  std::string algorithm = "auto";                         // environment TRIREME_COMM_ALGORITHM
  Duration timeout = std::chrono::seconds(30);            // TRIREME_TIMEOUT, seconds
  Duration timeout_user_code = std::chrono::minutes(30);  // TRIREME_TIMEOUT_USER_CODE, seconds
  bool reproducible = true;
  /// The values that must be equal on all ranks, as text (docs/numerics.md). A rank that differs is
  /// refused with the differing lines. Empty: not compared.
  std::string identity = {};
  /// Records this rank's collectives and training steps as spans (observe/trace.h); null: off.
  std::shared_ptr<observe::Trace> trace = nullptr;
  /// TCP connections per pair of ranks, which share large messages (TRIREME_COMM_SOCKETS).
  int sockets = 1;
  /// The sending rate limit of a TCP connection in bytes/s; 0: none. Leaves bandwidth to others, or
  /// shows how a job runs on a slow network (TRIREME_COMM_RATE).
  std::int64_t rate = 0;
  /// The interface ("eth0") or subnet ("10.0.0.0/8") through which ranks on other hosts reach this
  /// rank. Empty: the interface towards the coordinator (TRIREME_COMM_INTERFACE).
  std::string interface = {};
};

/// The caller's communicator, without mpi.h: `MPI_Comm comm; Job job(MpiComm{&comm});`
struct MpiComm {
  const void* address = nullptr;  // of an MPI_Comm
};

/// Job::stop_signal() of ranks that are to finish their step and then regroup (job_changes.h).
inline constexpr int kRanksChange = 1;

/// A process of a simulated elastic job. `connect` makes the transport of the ranks of an epoch.
struct SimulatedProcess {
  int process = 0;
  std::shared_ptr<Waiter> waiter = nullptr;
  std::function<std::shared_ptr<net::Transport>(const rendezvous::Epoch& epoch)> connect = {};
};

class Job {
 public:
  Job(int argc, char** argv, JobOptions options = {});
  /// Joins with the processes of `communicator`. Collective over it, because it is duplicated. MPI
  /// must run with at least MPI_THREAD_SERIALIZED until the Job has ended (with MPI_THREAD_MULTIPLE
  /// if the program calls MPI during the Job and the transport is mpi). The Job does not finalise
  /// MPI.
  explicit Job(MpiComm communicator, JobOptions options = {});
  /// A Job over an existing transport, such as a simulated one. Rank and size are the transport's,
  /// and each rank counts as its own host. Reads no environment but TRIREME_HOST (of a rank alone),
  /// and installs no handler; a process may have several. `tuning` chooses algorithms; may be null.
  Job(std::shared_ptr<net::Transport> transport, JobOptions options,
      std::shared_ptr<const plan::Tuning> tuning);
  /// An elastic Job over transports: changes().adopt() brings it news, and it is a rank after the
  /// first changes().enter_next().
  Job(SimulatedProcess process, JobOptions options);
  ~Job();
  Job(const Job&) = delete;

  /// Among the processes of the same role: worker 2 of 4, server 1 of 2.
  int rank() const noexcept;
  int size() const noexcept;
  int local_rank() const noexcept;  // among the ranks of this host
  int local_size() const noexcept;
  int host_rank() const noexcept;  // hosts are ordered by their lowest ranks
  int num_hosts() const noexcept;
  /// The system's host name, or TRIREME_HOST.
  const std::string& host_name() const noexcept;
  /// This rank's GPU if the transport is nccl, otherwise the CPU, as for a server.
  Device device() const noexcept;
  /// Worker, unless a launcher started servers or an evaluator as well. These are alone in their
  /// world(); that of the workers has the workers only. Chief: rank 0 under a launcher that calls
  /// it so (TFJob).
  Role role() const noexcept;
  /// How many processes of each role the job has. In a TFJob only the evaluator itself counts it.
  rendezvous::Roles roles() const;
  /// Whether this process was started after the job had begun: in place of a lost one, or as one
  /// more worker, whose rank() is not below size(). Such a worker trains on its own. All workers
  /// under `trireme coordinator --workers` count as such. False in an elastic job.
  bool joined_later() const noexcept;
  /// For a worker under `trireme coordinator --workers`: whether rank 0 has ended, so that this
  /// one's work no longer counts.
  bool training_ended() const noexcept;
  /// For a server and the evaluator: whether all workers have ended, or the job has failed. The
  /// waiter wakes when it changes. Workers that are asked to stop still need their servers.
  bool finished() const noexcept;
  /// Connections to the parameter servers, and what is known of them (job_servers.h).
  JobServers& servers() const;
  /// How the ranks of an elastic job change (job_changes.h).
  JobChanges& changes() const;
  /// Cores that this rank may compute on: its share of the affinity mask and the cgroup quota.
  int cores() const noexcept;
  const JobOptions& options() const noexcept;

  comm::Communicator& world() const;
  comm::Communicator& host() const;    // the ranks on this host, by local rank
  comm::Communicator& across() const;  // one rank per host, with this local rank; by host rank
  std::shared_ptr<Waiter> waiter() const;

  /// 130 if this rank or the launcher has received SIGINT; 143 for SIGTERM, SIGUSR1 or SIGHUP;
  /// otherwise 0, or kRanksChange if ranks of an elastic job are to regroup. Ranks agree on the
  /// step at which they stop by the step's vote, not here.
  int stop_signal() const noexcept;
  /// Names what user code does now ("checkpoint.save"), for heartbeats and stall reports.
  void activity(std::string_view what) noexcept;
  /// Sets the current step, which errors contain.
  void set_step(long step) noexcept;
  /// The messages between the Sampler and the strategy (job/job_input.h).
  JobInput& input() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The ranks of an elastic job have agreed, at the end of a step, to regroup.
class RanksChanged : public Error {
 public:
  RanksChanged() : Error(ExitCode::PeerLost, "the ranks of the job change after this step") {}
};

/// Calls `body` until it returns, and again if it throws because the ranks have changed. Returns
/// its result. Other exceptions pass. A job that is not elastic calls it once (docs/elastic.md).
///
///     Job job(argc, argv);
///     return run_elastic(job, [&] {
///       Strategy strategy(job, ...);
///       Checkpointer checkpointer(job, "runs/mine");
///       checkpointer.add("train", strategy);
///       for (long step = checkpointer.resume(); step < n; ++step) {...; checkpointer.after(step);}
///       return 0;
///     });
///
/// `body` is called once in each epoch, and makes anew all that belongs to its ranks.
/// Checkpointer::resume() then takes the state from the ranks that have it.
int run_elastic(Job& job, const std::function<int()>& body);

}  // namespace trireme::inline v0
