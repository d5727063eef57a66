// The error types. Operational errors (a peer died, a deadline passed, a configuration is wrong, a
// disk is full) are thrown on the caller's thread and carried in Work. For broken invariants see
// check.h.
//
// Each error knows where it happened (rank, host, operation, peer, label, step), ends with a
// sentence of advice, and maps to an exit code of docs/architecture.md. Plain values.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

namespace trireme::inline v0 {

/// Exit codes: 0 done; 2 usage; 10-19 refused; 20-29 user code; 130/143 stopped; 160-169 peers
/// lost; 170-179 resources.
enum class ExitCode : int {
  Done = 0,
  Usage = 2,
  Refused = 10,  // version or identity differs
  Unauthenticated = 11,
  Checkpoint = 12,
  UserCode = 20,  // exception or NaN from user code
  StepRefused = 21,
  UnevenInput = 22,
  Mismatch = 23,  // ranks submitted different operations
  Interrupted = 130,
  Terminated = 143,
  PeerLost = 160,
  Timeout = 161,
  CoordinatorLost = 162,
  Resource = 170,
  NoDeviceMemory = 171,
};

/// The place of an error and what to do about it. Unknown fields stay -1 or empty.
struct ErrorContext {
  int rank = -1;
  std::string host;
  std::string operation;  // "all_reduce", "checkpoint.save", "config"
  int peer = -1;
  std::string label;  // "bucket 2", a parameter, a file:line
  long step = -1;
  std::string advice;  // one sentence
};

class Error : public std::exception {
 public:
  Error(ExitCode code, std::string message, ErrorContext context = {});

  /// "message (rank 1 on host a, all_reduce bucket 2, peer 0, step 7). advice"
  const char* what() const noexcept override { return what_.c_str(); }
  const std::string& message() const noexcept { return message_; }
  ExitCode code() const noexcept { return code_; }
  int exit_code() const noexcept { return static_cast<int>(code_); }
  int rank() const noexcept { return context_.rank; }
  const std::string& host() const noexcept { return context_.host; }
  const std::string& operation() const noexcept { return context_.operation; }
  int peer() const noexcept { return context_.peer; }
  const std::string& label() const noexcept { return context_.label; }
  long step() const noexcept { return context_.step; }
  const std::string& advice() const noexcept { return context_.advice; }
  const ErrorContext& context() const noexcept { return context_; }

 private:
  ExitCode code_;
  std::string message_;
  ErrorContext context_;
  std::string what_;
};

#define TRIREME_DEFINE_ERROR(Name, code)                          \
  class Name : public Error {                                     \
   public:                                                        \
    explicit Name(std::string message, ErrorContext context = {}) \
        : Error(code, std::move(message), std::move(context)) {}  \
    Name(ExitCode own, std::string message, ErrorContext context) \
        : Error(own, std::move(message), std::move(context)) {}   \
  }
TRIREME_DEFINE_ERROR(ConfigError, ExitCode::Usage);        // bad config, usage or data path
TRIREME_DEFINE_ERROR(RefusedError, ExitCode::Refused);     // version, authentication, identity
TRIREME_DEFINE_ERROR(MismatchError, ExitCode::Mismatch);   // ranks called different operations
TRIREME_DEFINE_ERROR(TimeoutError, ExitCode::Timeout);     // a deadline passed in silence
TRIREME_DEFINE_ERROR(PeerLost, ExitCode::PeerLost);        // a rank or the coordinator is gone
TRIREME_DEFINE_ERROR(StepRefused, ExitCode::StepRefused);  // the vote refused a step (NaN, error)
TRIREME_DEFINE_ERROR(UnevenInput, ExitCode::UnevenInput);  // one rank's loop ended early
TRIREME_DEFINE_ERROR(CheckpointError, ExitCode::Checkpoint);  // torn, flipped, foreign checkpoint
TRIREME_DEFINE_ERROR(ResourceError, ExitCode::Resource);      // disk, memory, ports, descriptors
TRIREME_DEFINE_ERROR(StopRequested, ExitCode::Interrupted);   // SIGINT/SIGTERM, checkpoint written
#undef TRIREME_DEFINE_ERROR

/// The message and exit code of the error in `pointer`. An exception that is not an Error becomes
/// "threw std::out_of_range: text" with exit code 20.
struct ErrorReport {
  int exit_code = static_cast<int>(ExitCode::UserCode);
  std::string sentence;
  ErrorContext context;
};
ErrorReport describe(const std::exception_ptr& pointer) noexcept;

/// Throws an error of the type that belongs to `code`. Used where errors cross processes.
[[noreturn]] void throw_error(ExitCode code, std::string message, ErrorContext context);
/// The error that throw_error() throws.
std::exception_ptr make_error(ExitCode code, std::string message, ErrorContext context) noexcept;

}  // namespace trireme::inline v0
