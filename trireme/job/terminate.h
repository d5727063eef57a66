// When an exception leaves main, the message is printed, the coordinator is told (so the peers end
// within 2 s), and the process ends with the documented exit code. A process that has only lost a
// peer also says why the peer ended, if it learns that within a moment.
#pragma once

#include <exception>
#include <string>

#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/status_page.h"

namespace trireme::inline v0::job {

/// The rank that a failure is reported as, and where. One per process; the pointers may be null.
struct Reporter {
  int rank = 0;  // of the process, among all of the job
  int size = 1;  // processes
  std::string name = "rank 0";
  std::string host;
  rendezvous::CoordinatorClient* client = nullptr;
  rendezvous::StatusPage* status = nullptr;
  /// No launcher of ours sets the job's exit code, so a rank that ends because of another rank's
  /// failure uses that failure's exit code.
  bool adopt_code = false;
};

/// Call it first in every program that is or becomes a rank: opens the standard streams, ignores
/// closed output pipes, and installs the exception handler.
void prepare_process();
/// Installs the handler (once) and sets where it reports to. Thread safe.
void set_reporter(Reporter reporter);
/// Another process's failure, which is the job's first.
void note_first_failure(const rendezvous::Failure& failure);
/// If another process's failure caused `failure`, waits for it to be noted, for half a second at
/// most: news of the cause may come after its consequence.
void await_cause(const rendezvous::Failure& failure);
/// Removes the client and the status page, which are about to be destroyed; keeps rank and host.
void clear_reporter() noexcept;
/// Describes `error` as this process's Failure.
rendezvous::Failure failure_from(const std::exception_ptr& error);

}  // namespace trireme::inline v0::job
