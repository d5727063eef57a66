#include "trireme/cli/bench/bench_scale.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "trireme/base/file.h"
#include "trireme/base/plot/line_plot.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/cli/bench/compare.h"
#include "trireme/cli/command.h"
#include "trireme/cli/files.h"
#include "trireme/cli/launch/own_run.h"
#include "trireme/plan/link.h"
#include "trireme/rendezvous/launchers/environment.h"
#include "trireme/show/drawing/words.h"

namespace trireme::inline v0::cli {
namespace {

constexpr std::size_t kWarmUp = 3;  // first steps of a run, not counted
constexpr int kSimulatedSteps = 2;

struct ScaleOptions {
  std::string config, link = "25us,1GB/s", svg = "scale.svg";
  std::vector<int> ranks = {1, 2, 4}, simulate = {8, 16};
  int steps = 12;
  std::vector<std::string> set;
  bool json = false;
};

struct Run {
  std::string name;  // of its folder
  int ranks = 1, steps = 1;
  std::int64_t batch = 0;  // 0: as configured
  bool simulated = false;
};

std::vector<std::string> arguments_of(const ScaleOptions& options, const Run& run,
                                      const std::string& folder) {
  std::vector<std::string> words = {"train", options.config, "--ranks", std::to_string(run.ranks),
                                    "--out", folder};
  const auto set = [&](const std::string& assignment) {
    words.push_back("--set");
    words.push_back(assignment);
  };
  for (const std::string& assignment : options.set) set(assignment);
  set("train.steps=" + std::to_string(run.steps));
  for (const char* off : {"train.validate_every=0", "train.sample_bytes=0", "checkpoint.every=0"})
    set(off);
  if (run.batch > 0) set("batch.global=" + std::to_string(run.batch));
  if (run.simulated) words.insert(words.end(), {"--transport", "sim", "--link", options.link});
  return words;
}

ComparedRun train(const ScaleOptions& options, const Run& run, OwnRuns& runs) {
  const std::string path = runs.folder().file(run.name), log = run.name + ".log";
  const int code = runs.run(arguments_of(options, run, path), log);
  if (code != 0) {
    std::fputs(read_file(runs.folder().file(log), "",
                         {.operation = "bench scale", .advice = "Set TMPDIR to one with room."})
                   .c_str(),
               stderr);
    refuse(
        "bench scale",
        "training on " + counted(run.ranks, "rank") + " failed with exit code " +
            std::to_string(code) + "; its output is above",
        "Try it alone: trireme train " + options.config + " --ranks " + std::to_string(run.ranks));
  }
  ComparedRun done = read_run(path);
  if (done.step_seconds.empty())
    refuse("bench scale",
           "training on " + counted(run.ranks, "rank") + " made no step with a finite loss",
           "Try it alone: trireme train " + options.config + ".");
  return done;
}

double median_after(const std::vector<double>& values, std::size_t first) {
  return median({values.begin() + static_cast<std::ptrdiff_t>(std::min(first, values.size() - 1)),
                 values.end()})
      .value_or(0);
}

class Scale {
 public:
  explicit Scale(const ScaleOptions& options) : options_(options) {}

  std::vector<ScalePoint> run() {
    const ScalePoint one = measured({.name = "one", .ranks = 1, .steps = options_.steps});
    batch_ = whole("batch.global");
    micro_batches_ = batch_ / whole("batch.micro");
    compute_ = one.step_seconds - one.communication_seconds;
    std::vector<ScalePoint> points;
    for (const bool weak : {false, true}) {
      for (const int ranks : options_.ranks) add(points, weak, ranks, false, one);
      for (const int ranks : options_.simulate) add(points, weak, ranks, true, one);
    }
    return points;
  }
  const std::vector<std::string>& left_out() const noexcept { return left_out_; }

 private:
  std::int64_t whole(const char* key) const { return std::stoll(keys_.at(key)); }

  ScalePoint measured(const Run& run) {
    say(true, counted(run.ranks, "rank") + ", " + counted(run.steps, "step") +
                  (run.simulated ? " on the simulated network" : "") + " ...");
    const ComparedRun done = train(options_, run, runs_);
    keys_ = done.keys;
    const std::size_t first = run.simulated ? 1 : kWarmUp;
    return {.simulated = run.simulated,
            .ranks = run.ranks,
            .step_seconds = median_after(done.step_seconds, first),
            .communication_seconds = median_after(done.communication_seconds, first)};
  }

  void add(std::vector<ScalePoint>& points, bool weak, int ranks, bool simulated,
           const ScalePoint& one) {
    if (!weak && ranks > micro_batches_) {
      left_out_.push_back(counted(ranks, "rank") + " have only " +
                          counted(micro_batches_, "micro-batch", "micro-batches") +
                          " to share (batch.global / batch.micro)");
      return;
    }
    ScalePoint point = one;
    const std::int64_t batch = weak ? batch_ * ranks : batch_;
    if (ranks > 1 || simulated) {
      point = measured({.name = std::string(simulated ? "simulated-" : "") +
                                (weak ? "weak-" : "strong-") + std::to_string(ranks),
                        .ranks = ranks,
                        .steps = simulated ? kSimulatedSteps : options_.steps,
                        .batch = weak ? batch : 0,
                        .simulated = simulated});
    }
    if (simulated) {  // simulated ranks compute in no time
      const double compute = weak ? compute_ : share_of_compute(compute_, micro_batches_, ranks);
      point.step_seconds = compute + point.communication_seconds;
    }
    point.weak = weak;
    point.samples_per_second = static_cast<double>(batch) / point.step_seconds;
    point.speedup = point.samples_per_second / (static_cast<double>(batch_) / one.step_seconds);
    points.push_back(point);
  }

  const ScaleOptions& options_;
  OwnRuns runs_{"bench scale"};
  std::map<std::string, std::string> keys_;
  std::int64_t batch_ = 0, micro_batches_ = 0;
  double compute_ = 0;
  std::vector<std::string> left_out_;
};

std::string assumption_of(const ScaleOptions& options) {
  return "simulated: links of " + options.link +
         ", every rank computes as one does here, nothing hides communication";
}

void print(const std::vector<ScalePoint>& points) {
  for (const bool weak : {false, true}) {
    std::printf(weak ? "\nweak scaling: the batch grows with the ranks\n"
                     : "strong scaling: one batch, shared by the ranks\n");
    std::printf("  %5s  %9s  %13s  %9s  %7s  %10s\n", "ranks", "step", "communication", "samples/s",
                "speedup", "efficiency");
    for (const ScalePoint& point : points) {
      if (point.weak != weak) continue;
      std::printf("  %5d  %7.4f s  %11.4f s  %9.1f  %6.2fx  %8.0f %%%s\n", point.ranks,
                  point.step_seconds, point.communication_seconds, point.samples_per_second,
                  point.speedup, 100 * point.speedup / point.ranks,
                  point.simulated ? "  simulated" : "");
    }
  }
}

void print_json(const std::vector<ScalePoint>& points, const std::string& link) {
  for (const ScalePoint& point : points) {
    nlohmann::ordered_json event = {{"event", "scale"},
                                    {"kind", point.weak ? "weak" : "strong"},
                                    {"ranks", point.ranks},
                                    {"source", point.simulated ? "simulated" : "measured"},
                                    {"step_seconds", point.step_seconds},
                                    {"communication_seconds", point.communication_seconds},
                                    {"samples_per_second", point.samples_per_second},
                                    {"speedup", point.speedup}};
    if (point.simulated) event["link"] = link;
    std::fputs(show::json_line(event).c_str(), stdout);
  }
}

void check(const ScaleOptions& options) {
  std::error_code none;
  if (!std::filesystem::exists(options.config, none))
    refuse("bench scale", "there is no " + options.config,
           "Name a configuration, such as configs/gpt-nano.toml.");
  if (options.steps <= static_cast<int>(kWarmUp))
    refuse("bench scale",
           "--steps " + std::to_string(options.steps) + " leaves no step to measure: the first " +
               std::to_string(kWarmUp) + " are not counted",
           "Give at least " + std::to_string(kWarmUp + 1) + ".");
  plan::link_of(options.link);
  check_can_write(options.svg, "bench scale");
}

int bench_scale(const ScaleOptions& options) {
  check(options);
  rendezvous::ignore_launchers();  // its runs are processes of this host
  Scale scale(options);
  const std::vector<ScalePoint> points = scale.run();
  const std::string name = std::filesystem::path(options.config).stem().string();
  write_file(options.svg, draw_scale(name, points, assumption_of(options)), "bench scale");
  if (options.json) {
    print_json(points, options.link);
  } else {
    print(points);
    std::printf("\n%s\n", assumption_of(options).c_str());
    std::printf("ranks that share cores slow one another: this machine has %ld\n",
                sysconf(_SC_NPROCESSORS_ONLN));
  }
  for (const std::string& line : scale.left_out()) say(options.json, "left out: " + line);
  say(options.json, "the curves are in " + options.svg);
  return 0;
}

}  // namespace

void sort_once(std::vector<int>& counts) {
  std::ranges::sort(counts);
  counts.erase(std::ranges::unique(counts).begin(), counts.end());
}

double share_of_compute(double compute, std::int64_t micro_batches, int ranks) {
  const std::int64_t most = (micro_batches + ranks - 1) / ranks;
  return compute * static_cast<double>(most) / static_cast<double>(micro_batches);
}

std::string draw_scale(const std::string& name, const std::vector<ScalePoint>& points,
                       const std::string& assumption) {
  LinePlot plot{.title = name + ": samples a second over ranks",
                .subtitle = assumption,
                .x_label = "ranks",
                .y_label = "samples a second"};
  Curve ideal{.name = "ideal", .points = {}, .color = "#aaaaaa", .width = 1};
  const auto add = [&](const char* label, bool weak, bool simulated, const char* color) {
    Curve curve{.name = label, .points = {}, .color = color, .markers = true};
    if (simulated) curve.opacity = 0.5;
    for (const ScalePoint& point : points)
      if (point.weak == weak && point.simulated == simulated)
        curve.points.emplace_back(point.ranks, point.samples_per_second);
    if (!curve.points.empty()) plot.curves.push_back(std::move(curve));
  };
  add("strong", false, false, "#1f77b4");
  add("strong, simulated", false, true, "#1f77b4");
  add("weak", true, false, "#d62728");
  add("weak, simulated", true, true, "#d62728");
  for (const ScalePoint& point : points)
    ideal.points.emplace_back(point.ranks, point.samples_per_second / point.speedup * point.ranks);
  std::sort(ideal.points.begin(), ideal.points.end());
  plot.curves.push_back(std::move(ideal));
  return draw(plot);
}

void declare_bench_scale(Command& command) {
  auto& options = command.keep<ScaleOptions>();
  command.about("A training job's step over ranks: strong and weak scaling")
      .footer(
          "Example:\n  trireme bench scale configs/gpt-nano.toml --ranks 1 2 --simulate 4 "
          "--steps 4");
  command.option("CONFIG", options.config, "Configuration (TOML), such as configs/gpt-nano.toml")
      .required();
  command.option("--ranks", options.ranks, "Rank counts to run here").between(1, 256);
  command.option("--simulate", options.simulate, "Rank counts to simulate; 0: none")
      .between(0, 256);
  command.option("--link", options.link, "The simulated network's links");
  command.option("--steps", options.steps, "Steps of each run; the first three are not counted");
  command.option("--set", options.set, "key=value, as often as wanted").repeatable();
  command.option("--svg", options.svg, "FILE for the curves");
  command.flag("--json", options.json, "JSON lines");
  command.run([&options] {
    std::erase(options.simulate, 0);
    for (std::vector<int>* counts : {&options.ranks, &options.simulate}) sort_once(*counts);
    return bench_scale(options);
  });
}

}  // namespace trireme::inline v0::cli
