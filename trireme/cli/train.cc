// trireme train: check everything, plan, claim the run's folder, start the ranks.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/cli/command.h"
#include "trireme/cli/fit.h"
#include "trireme/cli/simulate_ranks.h"
#include "trireme/cli/start_ranks.h"
#include "trireme/cli/training_job.h"
#include "trireme/command/files.h"
#include "trireme/observe/events.h"
#include "trireme/plan/link.h"
#include "trireme/show/recorded_schedule.h"
#include "trireme/show/schedule_picture.h"
#include "trireme/train/job_plan.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/trainer.h"

namespace trireme {
inline namespace v0 {
namespace cli {
namespace {

struct Options {
  TrainingJobOptions job;
  std::string out, resume, trace;
  bool json = false, help_config = false, fit = false;
  bool trial = false;  // of --fit: two steps, to measure them
};

// Which folder, and whether a run goes on there.
struct Place {
  std::string folder;  // empty: to be claimed
  bool resume = false, overwrite_start = false;
};

Place decide_place(const Options& options) {
  if (options.resume == "auto") {
    if (options.out.empty()) {
      throw ConfigError("--resume auto needs --out DIR: the folder to continue in, or to start in",
                        {.operation = "train", .advice = "Add --out DIR."});
    }
    const train::RunFolder folder(options.out);
    if (folder.has_checkpoint()) return {options.out, true, false};
    // A run that ended before its first checkpoint is started again in its own folder.
    if (std::filesystem::exists(folder.config())) return {options.out, false, true};
    train::RunFolder::check_free(options.out);
    return {};
  }
  if (!options.resume.empty()) {
    if (!options.out.empty() && options.out != options.resume) {
      throw ConfigError("--resume " + options.resume + " continues in that folder, so --out " +
                            options.out + " cannot hold it",
                        {.operation = "train", .advice = "Leave --out away."});
    }
    const train::RunFolder folder = train::RunFolder::existing(options.resume);
    if (!folder.has_checkpoint()) {
      throw ConfigError(
          folder.path() + " holds no checkpoint to continue from",
          {.operation = "train", .advice = "Start anew: trireme train CONFIG --out ANOTHER."});
    }
    return {folder.path(), true, false};
  }
  if (!options.out.empty()) train::RunFolder::check_free(options.out);
  return {};
}

// The timeline is written at the end: too late to say that it cannot be.
void check_writable(const std::string& path) {
  const bool existed = std::filesystem::exists(path);
  if (!std::ofstream(path, std::ios::app)) {
    throw ConfigError(
        "cannot write the timeline to " + path,
        {.operation = "train", .advice = "Give --trace a file in a folder that is there."});
  }
  if (!existed) std::filesystem::remove(path);
}

void say_next(const Options& options, const Invocation& invocation, const std::string& folder,
              bool writes_text, int code) {
  if (code == 0 && !writes_text) {
    say(options.json, "next: " + invocation.program() + " eval " + folder);
  } else if (code == 0) {
    say(options.json,
        "next: " + invocation.program() + " generate " + folder + " --prompt \"template <class\"");
  } else if (code == 130 || code == 143) {
    say(options.json,
        "next: " + invocation.program() + " train --resume " + folder +
            (options.job.ranks > 1 ? " --ranks " + std::to_string(options.job.ranks) : ""));
  }
}

// The last step of a traced pipeline, above the same passes simulated. A picture is no reason to
// fail.
void draw_passes(const plan::Job& job, const train::RunFolder& folder, bool json) {
  try {
    std::ostringstream text;
    text << std::ifstream(folder.passes()).rdbuf();
    const std::string name = std::filesystem::path(job.schedule).filename().string();
    const show::DrawnSchedule run = show::read_recorded(text.str(), name);
    const show::DrawnSchedule again = show::simulated_again(run);
    const std::string figures = show::compare_text(run, again);
    command::write_file(folder.passes_picture(), show::svg_of(run, again, figures), "trace");
    say(json, "\n" + figures + "the last step's passes are drawn in " + folder.passes_picture());
  } catch (const Error& error) {
    say(json, "the recorded passes make no picture: " + error.message());
  }
}

void check_ranks(const TrainingJobOptions& options, const launch::RankEnvironment& place) {
  if (!options.ranks_given || options.ranks == place.size) return;
  throw ConfigError(
      "--ranks " + std::to_string(options.ranks) + ", but " + place.launcher + " started " +
          std::to_string(place.size) + " processes",
      {.operation = "config", .advice = "Leave --ranks away under " + place.launcher + "."});
}

void check_transport(const TrainingJob& job, const launch::RankEnvironment& place) {
  if (!job.plan.job.simulated) return;
  throw ConfigError("transport sim runs all ranks in one process, but " + place.launcher +
                        " started " + std::to_string(place.size),
                    {.operation = "config", .advice = "Start it without " + place.launcher + "."});
}

// Ranks that are threads share the program and the text.
std::int64_t in_one_process(const plan::TrainingPlan& plan) {
  const std::int64_t shared = plan.memory.runtime();
  return shared + plan.job.ranks * (plan.memory.total() - shared);
}

// A job that takes more than memory.limit is not started; what would fit is shown.
void check_memory(const TrainingJob& job, const FitOptions& options) {
  const plan::TrainingPlan& plan = job.plan;
  if (plan.fits()) return;
  const bool fits = show_what_fits(job.config, options);
  const std::int64_t total = plan.memory.total(), limit = plan.job.memory_limit;
  throw ConfigError("a rank is predicted to take " + std::to_string(total) +
                        " bytes, and memory.limit is " + std::to_string(limit) + " (" +
                        std::to_string(total - limit) + " fewer)",
                    {.operation = "config",
                     .advice = std::string(fits ? "--fit takes a layout that fits"
                                                : "None of these layouts fits: use more --ranks, "
                                                  "memory.offload or a smaller model") +
                               "; `plan` says what needs it."});
}

int train_command(Options options, const Invocation& invocation) {
  if (options.help_config) {
    std::fputs(train::training_help().c_str(), stdout);
    return 0;
  }
  const TimePoint began = steady_now();
  const auto launcher = under_launcher();
  if (launcher) {
    check_ranks(options.job, *launcher);
    options.job.ranks = launcher->size;
    if (launcher->rank > 0)
      return run_under_launcher(*launcher, invocation.argc, invocation.argv, {});
  }
  const Place place = decide_place(options);
  if (!options.trace.empty()) check_writable(options.trace);
  if (place.resume && options.job.config.empty()) {
    options.job.config = train::RunFolder(place.folder).config();
    options.job.name = std::filesystem::path(place.folder).filename().string();
  }
  const FitOptions fitting{
      .ranks = options.job.ranks, .new_job = !place.resume, .json = options.json};
  Refine refine;
  if (options.fit) {
    refine = [&](config::Config& config, const train::Settings& settings,
                 const input::Corpus& corpus) {
      FitOptions how = fitting;
      how.tries = !launcher && settings.job.transport != "sim";
      fit(config, settings, corpus, how);
    };
  }
  const TrainingJob job = prepare(options.job, refine);
  check_memory(job, fitting);
  if (launcher) check_transport(job, *launcher);
  const train::RunFolder folder = place.folder.empty()
                                      ? train::RunFolder::claim(options.out, job.plan.job.name)
                                      : train::RunFolder(place.folder);
  folder.write_config(job.config);
  if (place.overwrite_start) std::filesystem::remove(folder.events());
  {
    observe::EventWriter events;
    if (!place.resume) events.open(folder.events());
    events.echo_to_stdout(options.json);
    events.write(train::plan_event(job.plan));
  }
  if (!job.device_note.empty()) say(options.json, job.device_note);
  say(options.json, plan::explain(job.plan) + "  run      " + folder.path());
  const bool simulated = job.plan.job.simulated;
  const train::WorkerSpec spec{
      .folder = folder.path(),
      .trace = options.trace,
      .recompute = job.plan.job.recompute,
      .resume = place.resume,
      .json = options.json,
      .trial = options.trial,
      .terminal = isatty(options.json ? STDERR_FILENO : STDOUT_FILENO) == 1,
      .predicted_bytes = simulated ? in_one_process(job.plan) : job.plan.memory.total(),
      .corpus = job.corpus->descriptor(),
      .began = began.time_since_epoch().count()};
  const auto run = [&] {
    if (launcher) return run_under_launcher(*launcher, invocation.argc, invocation.argv, spec);
    if (!simulated) return start_ranks(options.job.ranks, invocation.argc, invocation.argv, spec);
    return simulate_ranks(options.job.ranks, plan::link_of(job.config.text("comm.link")), spec);
  };
  const int code = run();
  if (code == 0 && !options.trace.empty() && job.plan.job.pipeline > 1)
    draw_passes(job.plan.job, folder, options.json);
  say_next(options, invocation, folder.path(), job.writes_text, code);
  return code;
}

}  // namespace

void add_train(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("train", "Train a model on N ranks of this host");
  add_training_options(*command, options->job);
  command->add_option("--out", options->out,
                      "Folder of the run, new or empty (default: the next free runs/NAME)");
  command->add_option("--resume", options->resume,
                      "RUN: continue it; auto: continue in --out where it has a checkpoint");
  command->add_option("--trace", options->trace,
                      "Write a timeline of all ranks to this file (Chrome, ui.perfetto.dev)");
  command->add_flag("--fit", options->fit,
                    "Choose layout and lanes (of a new job also batch.micro) by the memory that is "
                    "there: memory.limit, else what the machine has left");
  command->add_flag("--trial", options->trial)->group("");  // what --fit starts
  command->add_flag("--json", options->json, "Events as JSON lines on standard output");
  command->add_flag("--help-config", options->help_config, "List every key of the configuration");
  command->footer("Example:\n  trireme train configs/gpt-nano.toml --ranks 2 --set train.steps=20");
  command->callback([options, command, &invocation] {
    options->job.ranks_given = command->count("--ranks") > 0;
    invocation.action = [options, &invocation] { return train_command(*options, invocation); };
  });
}

}  // namespace cli
}  // namespace v0
}  // namespace trireme
