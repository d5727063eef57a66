#include "trireme/ps/serve.h"

#include <sched.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/job/job.h"
#include "trireme/ps/server.h"

namespace trireme::inline v0 {
namespace {

// Workers that wait for a server leave it their cores.
int threads_here() {
  constexpr int kMost = 4;  // they share one memory
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return std::clamp(CPU_COUNT(&cores), 1, kMost);
}

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
  ps::ParameterServer server(
      job.waiter(), job.acceptor(),
      {.number = job.rank(),
       .incarnation = job.incarnation(),
       .contacts = {
           .view = [&job] { return job.server_view(); },
           .has_copy =
               [&job](int shard, std::uint64_t term, int at, std::uint32_t incarnation) {
                 job.tell_copy(shard, term, at, incarnation);
               },
           .unreachable =
               [&job](int at, std::uint32_t incarnation) { job.tell_unreachable(at, incarnation); },
           .dial = [&job](int at) { return job.dial_server(at); }},
       .threads = threads_here(),
       .patience = job.options().timeout});
  server.run([&job] { return job.finished(); });
  if (server.is_fenced() && !job.finished())
    throw PeerLost("the others could not reach this server and went on without it",
                   {.rank = job.rank(), .operation = "parameter server"});
  return 0;
}

}  // namespace trireme::inline v0
