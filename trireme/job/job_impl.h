// Job::Impl: what a Job consists of. job.cc joins and leaves; job_epochs.cc has what is special to
// elastic jobs. Only these two include it.
#pragma once

#include <unistd.h>

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/nccl/gpu.h"
#include "trireme/job/job.h"
#include "trireme/job/job_changes.h"
#include "trireme/job/job_groups.h"
#include "trireme/job/job_input.h"
#include "trireme/job/job_servers.h"
#include "trireme/job/terminate.h"
#include "trireme/net/connect.h"
#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/heartbeat.h"
#include "trireme/rendezvous/launchers/environment.h"
#include "trireme/rendezvous/launchers/mpi_meeting.h"
#include "trireme/rendezvous/launchers/socket_meeting.h"
#include "trireme/rendezvous/places.h"
#include "trireme/rendezvous/status_page.h"

namespace trireme::inline v0 {

struct Job::Impl {
  Impl(JobOptions given, MpiComm communicator);
  Impl(std::shared_ptr<net::Transport> transport, JobOptions given,
       std::shared_ptr<const plan::Tuning> measured);
  Impl(SimulatedProcess process, JobOptions given);
  ~Impl();
  void be_alone();
  void meet(MpiComm communicator);
  void join();
  /// Meets the other ranks and makes the communicators.
  void form();
  void enter_next_epoch();
  [[noreturn]] void end_without_place();
  void take_gpu();
  /// Makes the world of these ranks, and the groups of their hosts.
  void set_up_groups(std::shared_ptr<net::Transport> transport, comm::CommunicatorOptions of_world);
  std::shared_ptr<net::Transport> connect();
  /// Among the processes of this role; or, if `served`, among workers and servers.
  std::vector<std::string> exchange(const std::string& key, const std::string& mine,
                                    bool served = false);
  /// The number that this process has in a Table; in an elastic job, its rank.
  int own_number() const { return changes.elastic() ? env.rank : process; }
  void open_server();
  void meet_servers();
  net::ChannelOptions channel_options() const;
  comm::CommunicatorOptions world_options();
  /// The same for ranks of a simulated network, where no coordinator tells what peers do.
  comm::CommunicatorOptions simulated_options();
  void on_news(const rendezvous::News& news);
  /// PeerLost for news that the job has failed or has gone on without this process.
  std::exception_ptr error_of(const rendezvous::News& news);
  /// Ends the waits of this epoch if it has ended in the middle of a step.
  void break_epoch();
  /// `members`: the processes of the ranks; each counts as a host.
  void form_simulated(std::shared_ptr<net::Transport> transport, const std::vector<int>& members);
  job::Reporter reporter(rendezvous::CoordinatorClient* to);
  /// Ends the threads and connections, and tells the coordinator `code`.
  void leave(int code);
  /// `by_exception` is given: std::uncaught_exceptions() leaves out the one that is being handled.
  int exit_code(bool by_exception) const noexcept;
  void check_size() const;
  bool rank_0_coordinates() const noexcept;

  rendezvous::RankEnvironment env;
  std::string host;
  rendezvous::StatusPage status;
  JobOptions options;
  int cores = 1;
  std::string secret;
  std::shared_ptr<RealWaiter> waiter;
  std::unique_ptr<rendezvous::MpiMeeting> meeting;        // under mpirun
  std::unique_ptr<rendezvous::SocketMeeting> start;       // under srun, torchrun
  std::unique_ptr<rendezvous::CoordinatorClient> client;  // null: alone
  std::vector<std::string> hosts;                         // by rank
  rendezvous::Places places;
  std::shared_ptr<comm::nccl::Gpu> gpu;        // with transport nccl
  std::shared_ptr<const plan::Tuning> tuning;  // null: not measured
  std::unique_ptr<rendezvous::Heartbeat> heartbeat;
  JobGroups groups;
  JobInput input;
  JobServers servers;
  JobChanges changes;
  SimulatedProcess simulated;    // of an elastic job over transports
  const int creator = getpid();  // process that is the rank
  int process = 0;               // number among all; of an elastic job not the rank's
  std::atomic<bool> finished{false}, training_ended{false};
};

}  // namespace trireme::inline v0
