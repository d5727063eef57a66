// The overhead of the pipeline executor, measured with passes that sleep, against the simulator.
//
//     trireme launch -n RANKS --only-rank 0 --bind none -- bench.executor SCHEDULE
//             [--micro 16] [--times 4,4,4] [--elements 65536] [--steps 6]
//
// One stage per rank, or as many as the schedule has. Passes sleep: F, I and W by --times in
// milliseconds, B for I + W. So even with more ranks than cores only the measured overhead disturbs
// other ranks. A parcel is one tensor of --elements floats. Rank 0 prints a JSON line. It has
// bubble and cost of the median step, as recorded and as simulated from the recorded passes' mean
// times, and microseconds per action (passes, sends, receives), averaged over ranks: `own` is the
// time of Executor::run() outside of passes and blocking waits; `processor` is all processor time
// of the process, including the progress thread and the cost of falling asleep.
#include <ATen/ops/empty.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/job/job.h"
#include "trireme/pipeline/executor.h"
#include "trireme/plan/schedule/generators/schedules.h"
#include "trireme/plan/schedule/schedule_transfers.h"
#include "trireme/show/schedule/recorded_schedule.h"

namespace {

using namespace trireme;
using Seconds = std::chrono::duration<double>;

struct Options {
  std::string schedule = "1f1b";
  int micro = 16, steps = 6;
  std::int64_t elements = 65536;
  std::vector<double> times = {4, 4, 4};  // milliseconds
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (key == "--micro") {
      options.micro = std::stoi(value());
    } else if (key == "--steps") {
      options.steps = std::stoi(value());
    } else if (key == "--elements") {
      options.elements = std::stol(value());
    } else if (key == "--times") {
      std::istringstream text(value());
      options.times.clear();
      for (std::string one; std::getline(text, one, ',');) options.times.push_back(std::stod(one));
    } else if (key.starts_with("--")) {
      std::exit((std::fprintf(stderr, "unknown option %s\n", key.c_str()), 2));
    } else {
      options.schedule = key;
    }
  }
  if (options.times.size() != 3 || options.steps < 1)
    std::exit((std::fprintf(stderr, "--times F,I,W; --steps at least 1\n"), 2));
  return options;
}

// Sleeps until `end`, on the waiter's clock.
void sleep_until(std::chrono::steady_clock::time_point end) {
  const auto nanoseconds = end.time_since_epoch().count();
  const timespec time{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr);
}

class SleepingPasses final : public parallel::Passes {
 public:
  SleepingPasses(const Options& options, int stages) : options_(options), stages_(stages) {}

  parallel::Parcel forward(int stage, std::uint32_t, parallel::Parcel) override {
    sleep(options_.times[0]);
    return stage + 1 < stages_ ? parcel() : parallel::Parcel{};
  }
  parallel::Parcel backward(int stage, std::uint32_t, parallel::Parcel) override {
    sleep(options_.times[1] + options_.times[2]);
    return stage > 0 ? parcel() : parallel::Parcel{};
  }
  parallel::Parcel backward_input(int stage, std::uint32_t, parallel::Parcel) override {
    sleep(options_.times[1]);
    return stage > 0 ? parcel() : parallel::Parcel{};
  }
  void backward_weight(int, std::uint32_t) override { sleep(options_.times[2]); }
  void end_pass(plan::ActionKind, int, std::uint32_t) override {}
  void refuse(const std::exception_ptr& error) override { std::rethrow_exception(error); }

 private:
  static void sleep(double milliseconds) {
    sleep_until(std::chrono::steady_clock::now() +
                std::chrono::nanoseconds(std::llround(milliseconds * 1e6)));
  }
  parallel::Parcel parcel() const {
    const at::Tensor tensor = at::empty({options_.elements}, at::kFloat);
    return {.counts = {1}, .layouts = {parallel::layout_of(tensor, true)}, .tensors = {tensor}};
  }

  const Options& options_;
  int stages_;
};

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Timed {
  plan::Action action;
  double begin = 0, end = 0;
};

// One step, over all ranks.
struct Step {
  double recorded = 0, simulated = 0;                  // bubbles
  double recorded_seconds = 0, simulated_seconds = 0;  // costs
  double own = 0, processor = 0;                       // seconds per action
};

// The passes of all ranks, as `show schedule --recorded` reads them.
std::string lines_of(const plan::Schedule& schedule, const std::vector<double>& times) {
  std::ostringstream lines;
  lines.precision(17);
  auto at = times.begin();
  for (std::size_t rank = 0; rank < schedule.order.size(); ++rank) {
    for (const plan::Action& action : schedule.order[rank]) {
      if (!plan::is_pass(action.kind)) continue;
      lines << R"({"event": "pass", "rank": )" << rank << R"(, "pass": ")" << plan::text_of(action)
            << R"(", "begin": )" << *at << R"(, "end": )" << *(at + 1) << "}\n";
      at += 2;
    }
  }
  return lines.str();
}

class Bench {
 public:
  Bench(Job& job, const Options& options)
      : job_(job),
        options_(options),
        schedule_(plan::with_transfers(
            plan::load_schedule(options.schedule, job.size(), 0, options.micro))),
        keys_(static_cast<std::size_t>(options.micro), "train"),
        executor_({.pipeline = &job.world(),
                   .rank_of_stage = schedule_.rank_of_stage,
                   .values_after = std::vector<std::vector<std::string>>(
                       schedule_.rank_of_stage.size() - 1, {"x"}),
                   .on_pass = [this](const plan::Action& action, TimePoint begin, TimePoint end) {
                     mine_.push_back({action, Seconds(begin.time_since_epoch()).count(),
                                      Seconds(end.time_since_epoch()).count()});
                   }}) {}

  Step step() {
    mine_.clear();
    SleepingPasses passes(options_, schedule_.stages());
    job_.world().barrier().wait();
    const double processor = processor_seconds();
    const Duration waited = job_.world().time_waited();
    const TimePoint begin = job_.waiter()->now();
    executor_.run(schedule_, keys_, passes);
    const double wall = Seconds(job_.waiter()->now() - begin).count();
    const double blocked = Seconds(job_.world().time_waited() - waited).count();
    const double used = processor_seconds() - processor;
    executor_.sent().wait();
    executor_.settle(true);
    double in_passes = 0;
    for (const Timed& one : mine_) in_passes += one.end - one.begin;
    const auto actions =
        static_cast<double>(schedule_.order[static_cast<std::size_t>(job_.rank())].size());
    return gathered({(wall - in_passes - blocked) / actions, used / actions});
  }

  std::size_t actions() const {
    std::size_t sum = 0;
    for (const auto& order : schedule_.order) sum += order.size();
    return sum / schedule_.order.size();
  }

 private:
  Step gathered(std::vector<double> sums) const {
    job_.world().all_reduce(Buffer::of(std::span(sums)), Sum).wait();
    std::vector<double> mine, all;
    for (const Timed& one : mine_) mine.insert(mine.end(), {one.begin, one.end});
    std::vector<std::size_t> counts;
    for (const auto& order : schedule_.order)
      counts.push_back(2 * static_cast<std::size_t>(std::count_if(
                               order.begin(), order.end(),
                               [](const auto& action) { return plan::is_pass(action.kind); })));
    all.resize(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
    job_.world()
        .all_gather_v(Buffer::of(std::span(mine)), Buffer::of(std::span(all)), counts)
        .wait();
    const show::DrawnSchedule recorded =
        show::read_recorded(lines_of(schedule_, all), options_.schedule);
    const show::DrawnSchedule simulated = show::simulated_again(recorded);
    return {recorded.timeline.bubble_rate, simulated.timeline.bubble_rate, recorded.timeline.cost,
            simulated.timeline.cost,       sums[0] / job_.size(),          sums[1] / job_.size()};
  }

  Job& job_;
  const Options& options_;
  plan::Schedule schedule_;
  std::vector<std::string> keys_;
  std::vector<Timed> mine_;
  parallel::Executor executor_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  prctl(PR_SET_TIMERSLACK, 1);  // a sleep ends on time, not 50 us later
  Job job(argc, argv);
  Bench bench(job, options);
  std::vector<Step> steps;
  for (int i = 0; i < options.steps + 2; ++i) {  // shapes are agreed in the first one
    const Step step = bench.step();
    if (i >= 2) steps.push_back(step);
  }
  const auto of = [&](double Step::*figure) {
    std::vector<double> values;
    for (const Step& step : steps) values.push_back(step.*figure);
    return median(values);
  };
  if (job.rank() == 0)
    std::printf(
        "{\"schedule\": \"%s\", \"ranks\": %d, \"micro_batches\": %d, \"actions\": %zu, "
        "\"bubble\": %.5f, \"simulated_bubble\": %.5f, \"seconds\": %.6f, "
        "\"simulated_seconds\": %.6f, \"own_us\": %.2f, \"processor_us\": %.2f}\n",
        options.schedule.c_str(), job.size(), options.micro, bench.actions(), of(&Step::recorded),
        of(&Step::simulated), of(&Step::recorded_seconds), of(&Step::simulated_seconds),
        1e6 * of(&Step::own), 1e6 * of(&Step::processor));
  job.world().barrier().wait();
}
