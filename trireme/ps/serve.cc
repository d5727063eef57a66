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
  const ps::ServingOptions options{.number = job.rank(), .threads = threads_here()};
  ps::ParameterServer(job.waiter(), job.acceptor(), options).run([&job] { return job.finished(); });
  return 0;
}

}  // namespace trireme::inline v0
