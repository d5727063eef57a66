#include "trireme/train/report/log.h"

#include <unistd.h>

#include <exception>
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/waiter.h"
#include "trireme/input/batches.h"
#include "trireme/job/job.h"
#include "trireme/job/job_changes.h"
#include "trireme/observe/terminal.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/train/report/report.h"
#include "trireme/train/report/step_figures.h"
#include "trireme/train/run/run_folder.h"

namespace trireme::inline v0 {
namespace {

namespace fs = std::filesystem;
using train::RunFolder;

// Renames the events of an earlier run that this one does not continue.
void put_aside(const RunFolder& folder) {
  if (!fs::exists(folder.events())) return;
  const fs::path path = folder.events();
  for (int number = 1;; ++number) {
    const std::string aside = path.parent_path() / ("events." + std::to_string(number) + ".jsonl");
    if (fs::exists(aside)) continue;
    return fs::rename(path, aside);
  }
}

RunFolder prepared(const Job& job, const std::string& path, long first) {
  fs::path clean = fs::path(path).lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();
  RunFolder folder(clean.string());
  if (job.rank() != 0) return folder;
  try {
    fs::create_directories(clean);
    if (first == 0) put_aside(folder);
  } catch (const fs::filesystem_error& error) {
    throw ResourceError("cannot log into " + path + ": " + error.code().message(),
                        {.rank = job.rank(),
                         .operation = "log",
                         .advice = "Give a folder that can be written, or can be made."});
  }
  return folder;
}

train::ReportOptions report_options(const Job& job, const RunFolder& folder,
                                    const LogOptions& options) {
  const std::string ranks = std::to_string(job.size()) + (job.size() == 1 ? " rank" : " ranks");
  return {
      .silent = job.rank() != 0,
      .json = options.json,
      .terminal = observe::is_own_terminal(options.json ? STDERR_FILENO : STDOUT_FILENO),
      .ranks = job.size(),
      .goes_on = job.changes().epoch().number > 0,
      .steps = options.steps,
      .first = options.first,
      .title = options.title.empty() ? fs::path(folder.path()).filename().string() : options.title,
      .subtitle = ranks,
      .unit = options.unit,
      .items = options.items};
}

}  // namespace

struct Log::Impl {
  Impl(const Job& job, const std::string& path, const LogOptions& options)
      : waiter(job.waiter()),
        input(options.input),
        folder(prepared(job, path, options.first)),
        report(folder, report_options(job, folder, options)),
        done(options.first) {
    mark();
  }

  // Starts the time of the next step.
  void mark() {
    since = waiter->now();
    if (input != nullptr) input_before = input->time_waited();
  }

  // One of `steps` steps since the last mark(), of `count` items.
  void add(observe::StepFigures figures, std::size_t steps, std::int64_t count,
           const std::string& skipped) {
    const double part = 1 / static_cast<double>(steps);
    figures.step = ++done;
    figures.step_seconds = to_seconds(waiter->now() - since) * part;
    if (input != nullptr)
      figures.input_seconds = to_seconds(input->time_waited() - input_before) * part;
    if (count > 0 && figures.step_seconds > 0)
      figures.items_per_second = static_cast<double>(count) / figures.step_seconds;
    report.step(figures);
    if (!skipped.empty()) report.skipped(done, skipped);
  }

  void step(const StepResult& result) {
    add(train::figures_of(result), 1, result.count, result.skipped);
    if (result.share_change) report.shares(done, *result.share_change);
    mark();
  }

  void step(DataParallel& parallel) {
    const std::vector<BatchResult> results = parallel.take_results();
    for (const BatchResult& result : results)
      add(train::figures_of(result), results.size(), result.count.value_or(0), result.skipped);
    if (results.empty()) return;
    if (!results.back().loss && results.back().skipped.empty() && !std::exchange(said, true))
      report.line(
          "the log does not know the loss: call parallel.backward(loss) instead of "
          "loss.backward()");
    mark();
  }

  void finish() {
    if (std::exchange(finished, true)) return;
    report.close();
    report.plot();
    report.stragglers();
    report.line("the log is in " + folder.path() + " (events.jsonl, loss.svg, tensorboard/)");
  }

  std::shared_ptr<Waiter> waiter;
  const Batches* input;
  RunFolder folder;
  train::Report report;
  long done;
  TimePoint since{};
  Duration input_before{};
  bool finished = false;
  bool said = false;  // whether the hint about the unknown loss was printed
  int exceptions = std::uncaught_exceptions();
};

Log::Log(const Job& job, const std::string& folder, LogOptions options)
    : impl_(std::make_unique<Impl>(job, folder, options)) {}

Log::~Log() {
  if (std::uncaught_exceptions() != impl_->exceptions) return;
  try {
    impl_->finish();
  } catch (const std::exception&) {
    // Only the plot is missing.
  }
}

void Log::step(const StepResult& result) { impl_->step(result); }

void Log::step(DataParallel& parallel) { impl_->step(parallel); }

void Log::validation(double loss, std::int64_t count) {
  impl_->report.validation(impl_->done, loss, static_cast<long>(count));
  impl_->mark();
}

void Log::line(const std::string& text) { impl_->report.line(text); }

void Log::finish() { impl_->finish(); }

}  // namespace trireme::inline v0
