#include "trireme/job/terminate.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/standard_streams.h"
#include "trireme/net/mpi/mpi_library.h"
#include "trireme/observe/machine.h"

namespace trireme::inline v0::job {
namespace {

std::mutex mutex;
Reporter reporter;  // guarded by mutex
std::terminate_handler before = nullptr;
std::mutex first_mutex;
std::optional<rendezvous::Failure> first_failure;  // guarded by first_mutex

std::optional<rendezvous::Failure> cause_of(const rendezvous::Failure& failure) {
  std::lock_guard lock(first_mutex);
  return failure.secondary() ? first_failure : std::nullopt;
}

void write_line(const std::string& sentence) {
  const std::string line = "trireme: " + sentence + "\n";
  [[maybe_unused]] const auto put = write(STDERR_FILENO, line.data(), line.size());
}

// Within a longer sentence the cause has no full stop.
bool says(const std::string& sentence, std::string_view cause) {
  if (cause.ends_with('.')) cause.remove_suffix(1);
  return sentence.find(cause) != std::string::npos;
}

// All ranks stop together with the same message, and rank 0 prints it. The others wait this long,
// because another launcher may kill all ranks once it has seen the first one end.
constexpr int kRankZeroSpeaks = 300;  // ms

bool stops_after_rank_0(int code) { return (code == 130 || code == 143) && reporter.rank > 0; }

// An Error that knows its rank has a complete message; others get the rank (and place).
rendezvous::Failure make_failure(const ErrorReport& report, const Reporter& who) {
  rendezvous::Activity activity;
  if (who.status) activity = who.status->read(steady_now());
  rendezvous::Failure failure{who.rank,
                              who.host,
                              activity.step,
                              activity.waiting ? activity.operation : activity.last_call,
                              {},
                              report.exit_code};
  if (!report.context.operation.empty()) failure.operation = report.context.operation;
  if (report.context.step >= 0) failure.step = report.context.step;
  std::string sentence = report.sentence;
  if (report.context.rank < 0) {
    const bool foreign = sentence.rfind("threw ", 0) == 0;
    if (foreign || who.size > 1) {
      sentence = who.name + (foreign ? " " : ": ") + sentence;
    }
    if (foreign) {
      sentence += " (on host " + who.host;
      if (failure.step >= 0) sentence += ", step " + std::to_string(failure.step);
      if (!failure.operation.empty()) sentence += ", after " + failure.operation;
      sentence += ")";
    }
  }
  failure.sentence = std::move(sentence);
  return failure;
}

[[noreturn]] void on_terminate() {
  const std::exception_ptr error = std::current_exception();
  if (!error && before) before();  // std::terminate without an exception
  const ErrorReport report = describe(error);
  std::cout.flush();
  std::fflush(stdout);
  int code = report.exit_code;
  {
    std::lock_guard lock(mutex);
    const rendezvous::Failure failure = make_failure(report, reporter);
    if (stops_after_rank_0(code)) {
      if (reporter.adopt_code) poll(nullptr, 0, kRankZeroSpeaks);
    } else {
      write_line(failure.sentence);
    }
    if (reporter.status) reporter.status->set_last_words(failure.sentence);
    if (reporter.client) {
      reporter.client->report(failure);
      await_cause(failure);
    }
    if (const auto cause = cause_of(failure)) {
      if (reporter.adopt_code) code = cause->exit_code;
      if (!says(failure.sentence, cause->sentence))
        write_line("the job has failed: " + cause->sentence);
    }
  }
  net::abort_mpi(code);  // without it mpirun may return another code, or wait for the other ranks
  _exit(code);
}

}  // namespace

void prepare_process() {
  open_standard_streams();
  outlive_readers();
  set_reporter({.host = observe::host_name()});
}

void set_reporter(Reporter next) {
  std::lock_guard lock(mutex);
  reporter = std::move(next);
  static const bool installed = [] {
    before = std::set_terminate(on_terminate);
    return true;
  }();
  static_cast<void>(installed);
}

void note_first_failure(const rendezvous::Failure& failure) {
  std::lock_guard lock(first_mutex);
  if (!first_failure) first_failure = failure;
}

void await_cause(const rendezvous::Failure& failure) {
  constexpr int kPatience = 50, kMilliseconds = 10;
  for (int i = 0; i < kPatience && failure.secondary() && !cause_of(failure); ++i)
    poll(nullptr, 0, kMilliseconds);
}

void clear_reporter() noexcept {
  std::lock_guard lock(mutex);
  reporter.client = nullptr;
  reporter.status = nullptr;
}

rendezvous::Failure failure_from(const std::exception_ptr& error) {
  std::lock_guard lock(mutex);
  return make_failure(describe(error), reporter);
}

}  // namespace trireme::inline v0::job
