// serve(): what the server processes of a job run.
#pragma once

namespace trireme::inline v0 {

class Job;

/// Serves the workers of this job until all of them have ended; for a process whose job.role() is
/// Role::Server (docs/servers.md). Returns the exit code: 0.
int serve(Job& job);

}  // namespace trireme::inline v0
