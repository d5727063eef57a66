// trireme plan: prints what `train` prints before its first step; starts nothing.
#include <cstdio>

#include "trireme/cli/command.h"
#include "trireme/cli/files.h"
#include "trireme/cli/torch/fit/fit.h"
#include "trireme/cli/torch/model_graph.h"
#include "trireme/cli/torch/training_job.h"
#include "trireme/plan/partition/graph_text.h"
#include "trireme/train/plan/job_plan.h"

namespace trireme::inline v0::cli {

namespace {

struct PlanOptions {
  TrainingJobOptions job;
  std::string graph;
  bool json = false, fit = false;
};

int plan_command(const PlanOptions& options) {
  Refine refine;
  if (options.fit) {
    refine = [&](config::Config& config, const train::Settings& settings,
                 const input::Corpus& corpus) {
      fit(config, settings, corpus,
          {.ranks = options.job.ranks, .tries = false, .json = options.json});
    };
  }
  const TrainingJob job = prepare(options.job, refine);
  if (!options.graph.empty()) {
    const plan::Graph graph = model_graph(train::Settings(job.config), job.corpus);
    write_file(options.graph, plan::text_of(graph), "plan");
  }
  if (options.json) {
    std::printf("%s\n", train::plan_event(job.plan).line().c_str());
  } else {
    std::fputs(plan::explain(job.plan).c_str(), stdout);
    std::fflush(stdout);
  }
  if (!job.plan.fits() && !options.fit)
    show_what_fits(job.config, job.device.kind, {.ranks = options.job.ranks, .json = options.json});
  return 0;
}

}  // namespace

void declare_plan(Command& command) {
  auto& options = command.keep<PlanOptions>();
  command.about("Say what memory and time a training job takes; starts nothing")
      .footer(
          "The time of a step comes from the model's kernels, which are measured here for a second "
          "and\nkept in $XDG_CACHE_HOME/trireme or ~/.cache/trireme.\n\n"
          "Example:\n  trireme plan configs/gpt-nano.toml --ranks 2");
  add_training_options(command, options.job);
  command.option("--device", options.job.device,
                 "The GPU to plan for, which need not be here (h200, a100, ...), or cpu");
  command.flag("--fit", options.fit,
               "As train --fit, by prediction alone: what fits into the memory that is there");
  command.option("--graph", options.graph,
                 "FILE: write the model's blocks there, each measured here, for `show "
                 "partition` to cut");
  command.flag("--json", options.json, "The plan event as a JSON line");
  command.run([&options] { return plan_command(options); });
}

}  // namespace trireme::inline v0::cli
