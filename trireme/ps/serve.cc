#include "trireme/ps/serve.h"

#include "trireme/base/error.h"
#include "trireme/job/job.h"
#include "trireme/ps/server.h"

namespace trireme::inline v0 {

int serve(Job& job) {
  if (job.role() != Role::Server)
    throw ConfigError(
        "serve() in a process that is no server",
        {.rank = job.rank(),
         .operation = "parameter server",
         .advice = "Call it if job.role() == Role::Server; `trireme launch --workers 4 "
                   "--servers 2` starts servers."});
  job.activity("serve");
  ps::ParameterServer(job.waiter(), job.acceptor(), {.number = job.rank()}).run([&job] {
    return job.finished();
  });
  return 0;
}

}  // namespace trireme::inline v0
