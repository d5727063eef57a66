// trireme show schedule: a pipeline schedule, checked, simulated and drawn.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/file.h"
#include "trireme/base/parse_number.h"
#include "trireme/base/refuse.h"
#include "trireme/base/words.h"
#include "trireme/cli/show/drawing.h"
#include "trireme/plan/schedule/generators/schedules.h"
#include "trireme/plan/schedule/schedule_transfers.h"
#include "trireme/show/schedule/drawn_schedule.h"
#include "trireme/show/schedule/recorded_schedule.h"

namespace trireme::inline v0::cli {
namespace {

struct ShowScheduleOptions {
  std::string name;  // or a file
  int stages = 0, microbatches = 0, ranks = 0;
  std::string times = "1,1,1";
  bool recompute = false;
  std::string recorded;
  DrawingOptions drawing;
};

void list() {
  for (const plan::ScheduleEntry& entry : plan::schedules()) {
    std::printf("%-17s %-72s %s\n", std::string(entry.name).c_str(),
                std::string(entry.about).c_str(), std::string(entry.source).c_str());
  }
}

// "F,B,W" or "F,B,W,message".
plan::PipelineTimes times_of(const std::string& text) {
  std::vector<double> numbers;
  std::istringstream parts(text);
  bool good = true;
  for (std::string part; std::getline(parts, part, ',');) {
    numbers.push_back(parse_number<double>(part).value_or(-1));
    good = good && numbers.back() >= 0;
  }
  if (!good || numbers.size() < 3 || numbers.size() > 4 || text.back() == ',') {
    refuse("show", "\"" + text + "\" are no times",
           "Write those of a stage's forward pass, of its backward pass for the inputs and for the "
           "weights, in any unit: 1,1,1; and, as a fourth, of a message: 18.5,18.1,9.3,0.6.");
  }
  return {{{numbers[0], numbers[1], numbers[2]}}, numbers.size() > 3 ? numbers[3] : 0};
}

// A known schedule is none, whatever the working directory contains.
bool is_file(const std::string& name) {
  if (std::ranges::any_of(plan::schedules(), [&](const auto& one) { return one.name == name; }))
    return false;
  std::error_code none;
  return name.find_first_of("./") != std::string::npos || std::filesystem::exists(name, none);
}

constexpr int kMostStages = 1'000;

// A larger schedule takes minutes and gigabytes to draw.
void check_size(std::int64_t stages, std::int64_t microbatches) {
  constexpr std::int64_t kMostPasses = 1'000'000;
  if (stages <= kMostStages && microbatches <= kMostPasses / stages) return;
  refuse("show",
         counted(stages, "stage") + " and " +
             counted(microbatches, "micro-batch", "micro-batches") + " are too many to draw",
         "Use fewer: stages are at most " + grouped(kMostStages) +
             ", stages times micro-batches at most " + grouped(kMostPasses) + ".");
}

plan::Schedule read(const ShowScheduleOptions& options) {
  if (options.stages != 0 || options.microbatches != 0 || options.ranks != 0) {
    refuse("show", "a file says itself how many stages, ranks and micro-batches there are",
           "Leave out --stages, --ranks and --microbatches.");
  }
  const std::string text = read_file(
      options.name, "",
      {.operation = "show",
       .advice = "Name a file of a schedule or one of those that `show schedule` lists."});
  plan::Schedule schedule = plan::parse_schedule(text, options.name);
  check_size(schedule.stages(), schedule.microbatches());
  return schedule;
}

plan::Schedule generated(const ShowScheduleOptions& options) {
  const int stages = options.stages != 0 ? options.stages : 4;
  const int microbatches = options.microbatches != 0 ? options.microbatches : 8;
  check_size(stages, microbatches);
  return plan::make_schedule(
      options.name, {.ranks = options.ranks, .stages = stages, .microbatches = microbatches});
}

show::DrawnSchedule drawn(const ShowScheduleOptions& options) {
  const bool file = is_file(options.name);
  plan::Schedule schedule = file ? read(options) : generated(options);
  std::string about = file ? "" : std::string(plan::schedule_named(options.name).about);
  if (file) about = plan::why_not_trained(schedule);
  if (options.recompute) {
    plan::verify(schedule, options.name);
    schedule = plan::with_recompute(std::move(schedule));
    about += (about.empty() ? "" : "; ") + std::string("activations are computed again (RC)");
  }
  return show::draw(options.name, about, std::move(schedule), times_of(options.times));
}

// Draws a recorded run beside the simulation of its passes.
int show_recorded(const ShowScheduleOptions& options, const Command& command) {
  if (!options.name.empty())
    refuse("show", "a recorded run has its own schedule", "Leave out \"" + options.name + "\".");
  const std::string other = command.first_given(
      {"--stages", "--microbatches", "--ranks", "--times", "--recompute", "--step"});
  if (!other.empty())
    refuse("show", other + " cannot be combined with --recorded",
           "Leave it out: the run is drawn as it was recorded.");
  const show::DrawnSchedule run = show::read_recorded(
      read_file(options.recorded, "",
                {.operation = "show", .advice = "Name the file of a recorded step."}),
      options.recorded);
  const show::DrawnSchedule again = show::simulated_again(run);
  const std::string figures = show::compare_text(run, again);
  const DrawingOptions& drawing = options.drawing;
  if (!drawing.svg.empty()) write_file(drawing.svg, show::svg_of(run, again, figures), "show");
  if (!drawing.html.empty()) write_file(drawing.html, show::html_of(run), "show");
  if (drawing.json) {
    std::fputs((show::json_of(run) + show::json_of(again)).c_str(), stdout);
  } else if (drawing.svg.empty() && drawing.html.empty()) {
    std::printf("%s\n\n%s\n%s", show::name_of(run).c_str(), show::grid(run).c_str(),
                figures.c_str());
  }
  return 0;
}

int show_schedule(const ShowScheduleOptions& options, const Command& command) {
  if (!options.recorded.empty()) return show_recorded(options, command);
  if (options.name.empty()) {
    check_list(options.drawing, "schedule");
    list();
    return 0;
  }
  const show::DrawnSchedule schedule = drawn(options);
  output(options.drawing, schedule);
  if (options.drawing.steps()) {
    std::vector<std::string> moments;
    for (const double moment : show::moments(schedule))
      moments.push_back(show::moment_text(schedule, moment));
    step_through(show::name_of(schedule) + "\n", moments, "moment");
    std::printf("\n%s", show::footer(schedule).c_str());
  }
  return 0;
}

}  // namespace

void declare_show_schedule(Command& command) {
  auto& options = command.keep<ShowScheduleOptions>();
  command.about("Draw a pipeline schedule with its bubble")
      .footer("Example:\n  trireme show schedule 1f1b --stages 4 --microbatches 8");
  std::vector<std::string> names;
  for (const plan::ScheduleEntry& one : plan::schedules()) names.emplace_back(one.name);
  command.option("NAME", options.name, "1f1b, ..., or a file of a schedule; none: list")
      .completes(std::move(names));
  command.option("--stages", options.stages, "Into how many the model is cut (4)")
      .between(1, kMostStages);
  command.option("--microbatches", options.microbatches, "In a batch (8)").at_least(1);
  command
      .option("--ranks", options.ranks,
              "Fewer than stages: each holds several (default: what suits the schedule)")
      .at_least(1);
  command.option("--times", options.times,
                 "F,B,W[,message]: of a stage's forward pass, of its backward pass for the "
                 "inputs and for the weights, of a message");
  command.flag("--recompute", options.recompute, "Compute activations again before B");
  command.option("--recorded", options.recorded,
                 "FILE: JSON lines of a real step's passes, shown beside the simulated ones");
  add_drawing_options(command, options.drawing, "JSON lines: every pass with its time", "moment");
  command.run([&] { return show_schedule(options, command); });
}

}  // namespace trireme::inline v0::cli
