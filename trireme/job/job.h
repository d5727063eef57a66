// Job: this process's membership in a distributed run. Joins on construction, leaves on
// destruction.
//
// Started by `trireme launch`, `trireme train`, `mpirun`, `srun` or `torchrun`, it is one rank of
// n; started alone it is a job of one rank. No LibTorch. One Job per process; its accessors are
// const and thread safe. A failure to join throws; a lost peer breaks the communicators with
// PeerLost. The constructor installs a terminate handler, so that an exception in the user's own
// main keeps the exit-code contract.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/base/buffer.h"
#include "trireme/base/waiter.h"
#include "trireme/comm/communicator.h"
#include "trireme/job/input_plan.h"
#include "trireme/kernel/assignment.h"

namespace trireme {
inline namespace v0 {

namespace observe {
class Trace;
}

enum class Role : std::uint8_t { Worker, Chief, Server, Evaluator };

struct JobOptions {
  /// auto | shm | tcp | mixed | mpi | nccl (TRIREME_COMM_TRANSPORT). nccl: a GPU for each rank,
  /// whose memory travels over NCCL; CPU memory and all agreement go as with auto.
  std::string transport = "auto";
  std::string algorithm = "auto";                         // environment TRIREME_COMM_ALGORITHM
  Duration timeout = std::chrono::seconds(30);            // TRIREME_TIMEOUT, seconds
  Duration timeout_user_code = std::chrono::minutes(30);  // TRIREME_TIMEOUT_USER_CODE, seconds
  bool reproducible = true;
  /// Hash of what must be equal on all ranks (NUMERICS: identity), with a readable text; a rank
  /// that differs is refused with both texts. Empty: not compared.
  std::string identity = {};
  /// Takes this rank's collectives and training steps as spans (observe/trace.h); null = off.
  std::shared_ptr<observe::Trace> trace = nullptr;
  /// TCP connections between two ranks, which share its large messages (TRIREME_COMM_SOCKETS).
  int sockets = 1;
  /// The most bytes a second that a TCP connection sends; 0: all it can. To leave room for others,
  /// or to see what a slow network does to a job (TRIREME_COMM_RATE).
  std::int64_t rate = 0;
  /// By which ranks on other hosts reach this one: an interface ("eth0") or a subnet
  /// ("10.0.0.0/8"). Empty: the interface towards the coordinator. (TRIREME_COMM_INTERFACE)
  std::string interface = {};
};

/// A caller's communicator; no mpi.h is needed here: `MPI_Comm comm; Job job(MpiComm{&comm});`
struct MpiComm {
  const void* address = nullptr;  // of an MPI_Comm
};

class Job {
 public:
  Job(int argc, char** argv, JobOptions options = {});
  /// One rank for each of the communicator's, which is duplicated: collective over it. MPI must run
  /// with at least MPI_THREAD_SERIALIZED (MULTIPLE where the program calls MPI while the Job lives
  /// and transport mpi is in use) until the Job has ended; it is not finalised here.
  explicit Job(MpiComm communicator, JobOptions options = {});
  /// A seat in a group that is there already, such as a simulated one: rank and size are the
  /// transport's, and every rank counts as a host of its own. Reads no environment, installs no
  /// handler, and a process may have several. `tuning`: for the choice of algorithms; may be null.
  Job(std::shared_ptr<net::Transport> transport, JobOptions options,
      std::shared_ptr<const plan::Tuning> tuning);
  ~Job();
  Job(const Job&) = delete;

  int rank() const noexcept;
  int size() const noexcept;
  int local_rank() const noexcept;  // among the ranks of this host
  int local_size() const noexcept;
  int host_rank() const noexcept;  // of this host, in the order of their lowest ranks
  int num_hosts() const noexcept;
  /// The system's, or TRIREME_HOST.
  const std::string& host_name() const noexcept;
  /// With transport nccl this rank's GPU; else the CPU.
  Device device() const noexcept;
  Role role() const noexcept;
  /// Cores that this rank may compute on (affinity and cgroup quota, shared with its neighbours).
  int cores() const noexcept;
  const JobOptions& options() const noexcept;

  comm::Communicator& world() const;
  comm::Communicator& host() const;    // the ranks on this host, by local rank
  comm::Communicator& across() const;  // those with this local rank on every host, by host rank
  std::shared_ptr<Waiter> waiter() const;

  /// 130 where SIGINT, 143 where SIGTERM, SIGUSR1 or SIGHUP arrived at this rank or at the
  /// launcher; 0 if none did. Ranks agree on the step at which they stop through the step's vote,
  /// not here.
  int stop_signal() const noexcept;
  /// Tells heartbeats and stall reports what user code does now ("checkpoint.save").
  void activity(std::string_view what) noexcept;
  /// The step in progress; printed with errors.
  void set_step(long step) noexcept;
  /// The Sampler's plan, for DataParallel; null where no Sampler was made.
  void set_input_plan(std::shared_ptr<InputPlan> plan);
  std::shared_ptr<InputPlan> input_plan() const;
  /// What DataParallel does when the Sampler's loader begins a pass, before the first micro-batch:
  /// the Sampler calls begin_input() in the loader's thread, and that calls `follower`.
  void set_input_follower(std::function<void()> follower);
  void begin_input();
  /// Which micro-batches each rank computes: a strategy says it, the input reads it before every
  /// batch. Contiguous shares until then.
  void set_assignment(const kernel::Assignment& assignment);
  kernel::Assignment assignment() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace v0
}  // namespace trireme
