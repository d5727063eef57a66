// JobHosts: the hosts of one job, and which process is on which. A job on one host has this host.
//
// Connects to all other hosts at once, before anything is started. Used in the progress context of
// `waiter`, which must be destroyed first.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/launch/hosts/guard.h"
#include "trireme/launch/hosts/local_host.h"
#include "trireme/launch/hosts/remote_host.h"
#include "trireme/launch/launch.h"

namespace trireme::inline v0::launch {

class JobHosts {
 public:
  explicit JobHosts(const LaunchOptions& options);
  bool several() const noexcept { return several_; }
  /// Whether some process will run on another host.
  bool elsewhere() const noexcept { return local_processes() < roles_.processes(); }
  /// How many processes will run on this host.
  int local_processes() const noexcept;
  /// For people; empty if there is one host.
  std::string describe() const;
  /// `endpoint`: the coordinator's. Looks up names: not to be called in the progress context.
  void prepare(const std::string& secret, const std::string& endpoint);
  /// Makes the hosts, after prepare(). In the progress context.
  void open(Waiter& waiter, Guard& guard, const HostEvents& events);
  bool decided() const;
  /// Call it before processes are started. Throws the refusals of all hosts in one error.
  void check();
  /// Ends the connections; the other hosts kill the processes that still run there.
  void close();
  void kill_connections();
  bool closed() const;
  bool output_finished() const { return !local_ || local_->output_finished(); }

  /// Cuts the connection to the process's host, which is then lost with all its processes. No
  /// effect if it is this host.
  void drop_connection(int process);
  /// Ends attempts to reach lost hosts again.
  void end_attempts();
  Host& host_of(int process) { return *hosts_[index_of(process)]; }
  /// The process's host as others know it; empty if there is one host.
  std::string name_of(int process) const;
  bool is_local(int process) const { return !elsewhere_[index_of(process)]; }
  /// The process's variables: `common`, and those that differ between hosts.
  std::vector<std::string> environment_of(int process, std::vector<std::string> common) const;

 private:
  std::size_t index_of(int process) const {
    return static_cast<std::size_t>(places_[static_cast<std::size_t>(process)]);
  }
  int processes_on(std::size_t host) const;
  /// How many processes before `end` have its role and its host.
  int like(int process, int end) const;
  HostSetup setup_for(std::size_t host, const std::string& secret,
                      const std::string& endpoint) const;

  const LaunchOptions& options_;
  const rendezvous::Roles roles_;
  const bool several_;
  std::vector<HostSlots> slots_;
  std::vector<int> places_;      // by process
  std::vector<bool> elsewhere_;  // by host
  std::vector<std::shared_ptr<Host>> hosts_;
  std::shared_ptr<LocalHost> local_;  // null: nothing runs here
  std::vector<std::shared_ptr<RemoteHost>> remote_;
  std::vector<HostSetup> setups_;  // by host
  std::string coordinator_;        // as processes of this host reach it
};

}  // namespace trireme::inline v0::launch
