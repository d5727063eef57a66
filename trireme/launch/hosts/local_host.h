// LocalHost: the processes of a job on this host. Gives each its share of the cores, the job's
// secret by an inherited descriptor, pipes for its output and a status page.
//
// Used in the progress context of `waiter`, which must be destroyed first. The guard outlives it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/descriptor.h"
#include "trireme/base/waiter.h"
#include "trireme/launch/hosts/cores.h"
#include "trireme/launch/hosts/guard.h"
#include "trireme/launch/hosts/host.h"
#include "trireme/launch/hosts/spawn.h"

namespace trireme::inline v0::launch {

struct LocalHostOptions {
  std::string secret;
  int processes = 1;  // that will run here
  Bind bind = Bind::Core;
};

class LocalHost final : public Host {
 public:
  LocalHost(Waiter& waiter, Guard& guard, const LocalHostOptions& options, HostEvents events);
  void start(int process, const StartOptions& options) override;
  void signal(int process, int signal, bool group) override;
  /// Whether all output of all processes, or of one, has been read.
  bool output_finished() const;
  bool output_finished(int process) const;

 private:
  struct Running {
    pid_t pid = -1;  // -1: it has ended
    std::size_t number = 0;
    std::unique_ptr<rendezvous::StatusPage> status;
  };
  std::vector<std::string> environment_of(const StartOptions& options, int status) const;
  void supervise(int process, const Process& started);
  void ended(int process, Exit exit);
  void add(std::shared_ptr<DescriptorSource> source);
  void add_pipe(int process, bool error, Descriptor end);

  Waiter& waiter_;
  Guard& guard_;
  const HostEvents events_;
  const Descriptor secret_file_;
  const CoreShare share_;
  std::map<int, Running> processes_;
  /// By process. Pipes of its earlier runs stay until they have ended.
  std::multimap<int, std::shared_ptr<LineSource>> pipes_;
};

}  // namespace trireme::inline v0::launch
