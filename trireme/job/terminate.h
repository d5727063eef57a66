// What happens when this process's main ends by an exception: the sentence is printed, the
// coordinator told (so that the peers end within 2 s), and the exit code is the contract's.
#pragma once

#include <exception>
#include <string>

#include "trireme/launch/client.h"
#include "trireme/launch/status_page.h"

namespace trireme {
inline namespace v0 {
namespace job {

/// Who a failure is reported as, and to whom. One per process; the pointers may be null.
struct Reporter {
  int rank = 0;
  int size = 1;
  std::string host;
  launch::CoordinatorClient* client = nullptr;
  launch::StatusPage* status = nullptr;
  /// No launcher of ours sets the job's exit code: a rank that ends because of another's failure
  /// ends with that one's code.
  bool adopt_code = false;
};

/// What every program that is, or becomes, a rank does first: standard streams that are open,
/// a closed pipe that ends nobody, and from here on this handler for exceptions, those of a Job's
/// constructor too.
void prepare_process();
/// Installs the handler (once) and sets whom it reports to. Thread safe.
void set_reporter(Reporter reporter);
/// What the job's first failure ends with, once that is known.
void note_first_failure(int exit_code) noexcept;
/// The coordinator and the page go away now; rank and host stay for the sentence.
void clear_reporter() noexcept;
/// The Failure that `error` is for this process.
launch::Failure failure_from(const std::exception_ptr& error);

}  // namespace job
}  // namespace v0
}  // namespace trireme
