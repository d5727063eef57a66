#include "trireme/ps/server/serve.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/event.h"
#include "trireme/job/job.h"
#include "trireme/job/job_servers.h"
#include "trireme/observe/machine.h"
#include "trireme/ps/server/server.h"

namespace trireme::inline v0 {
namespace {

constexpr int kMostThreads = 4;  // they share one memory

// A signal to stop does not end a server, because the workers need it to save: this thread asks them to
// stop.
class StopsPassedOn {
 public:
  explicit StopsPassedOn(Job& job)
      : thread_([this, &job] {
          while (job.stop_signal() == 0)
            if (ended_.wait(std::chrono::milliseconds(100))) return;
          job.servers().tell_stop(job.stop_signal() - 128);
        }) {}
  ~StopsPassedOn() {
    ended_.set();
    thread_.join();
  }

 private:
  Event ended_;
  std::thread thread_;
};

}  // namespace

int serve(Job& job) {
  if (job.role() != Role::Server)
    throw ConfigError(
        "serve() in a process that is no server",
        {.rank = job.rank(),
         .operation = "parameter server",
         .advice = "Call it if job.role() == Role::Server; `trireme launch --workers 4 "
                   "--servers 2` starts servers."});
  job.activity("serve");
  JobServers& servers = job.servers();
  ps::ServingOptions options{.number = job.rank(),
                             .incarnation = servers.incarnation(),
                             // Workers that wait for a server leave it their cores.
                             .threads = std::min(observe::usable_cores().usable, kMostThreads),
                             .patience = job.options().timeout};
  options.contacts.view = [&servers] { return servers.view(); };
  options.contacts.has_copy = [&servers](int shard, std::uint64_t term, int at,
                                         std::uint32_t incarnation) {
    servers.tell_copy(shard, term, at, incarnation);
  };
  options.contacts.unreachable = [&servers](int at, std::uint32_t incarnation) {
    servers.tell_unreachable(at, incarnation);
  };
  options.contacts.dial = [&servers](int at, auto to) { return servers.dial(at, std::move(to)); };
  (void)job.stop_signal();  // installs the handler; the second signal ends this process
  const StopsPassedOn stops(job);
  ps::ParameterServer server(job.waiter(), servers.acceptor(), options);
  server.run([&job] { return job.finished(); });
  // Left out, or without a coordinator for good: fails, so that another process is started.
  const std::exception_ptr failure = servers.failure();
  if (failure && describe(failure).exit_code == static_cast<int>(ExitCode::CoordinatorLost))
    std::rethrow_exception(failure);
  if (server.is_fenced() && !job.finished())
    throw PeerLost("the others could not reach this server and went on without it",
                   {.rank = job.rank(), .operation = "parameter server"});
  return 0;
}

}  // namespace trireme::inline v0
