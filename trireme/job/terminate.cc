#include "trireme/job/terminate.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
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
std::atomic<int> first_code{0};

// Waits a moment, because the cause may be reported after its consequence.
int adopted(int code) {
  constexpr int kPatience = 50, kMilliseconds = 10;
  const bool secondary = rendezvous::Failure{.exit_code = code}.secondary();
  for (int i = 0; secondary && i < kPatience && first_code.load() == 0; ++i) {
    poll(nullptr, 0, kMilliseconds);
  }
  return secondary && first_code.load() != 0 ? first_code.load() : code;
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
    const std::string line = "trireme: " + failure.sentence + "\n";
    if (stops_after_rank_0(code)) {
      if (reporter.adopt_code) poll(nullptr, 0, kRankZeroSpeaks);
    } else {
      [[maybe_unused]] const auto put = write(STDERR_FILENO, line.data(), line.size());
    }
    if (reporter.status) reporter.status->set_last_words(failure.sentence);
    if (reporter.client) reporter.client->report(failure);
    if (reporter.adopt_code) code = adopted(code);
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

void note_first_failure(int exit_code) noexcept {
  int none = 0;
  first_code.compare_exchange_strong(none, exit_code);
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
