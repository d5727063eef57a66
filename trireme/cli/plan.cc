// trireme plan: prints what `train` prints before its first step; starts nothing.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "trireme/cli/command.h"
#include "trireme/cli/fit.h"
#include "trireme/cli/model_graph.h"
#include "trireme/cli/training_job.h"
#include "trireme/command/files.h"
#include "trireme/plan/graph_text.h"
#include "trireme/train/job_plan.h"

namespace trireme::inline v0::cli {

void add_plan(CLI::App& app, Invocation& invocation) {
  struct Options {
    TrainingJobOptions job;
    std::string graph;
    bool json = false, fit = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("plan", "Say what a training job takes; starts nothing");
  add_training_options(*command, invocation, options->job);
  command->add_flag("--fit", options->fit,
                    "As train --fit, by prediction alone: what fits into the memory that is there");
  command->add_option("--graph", options->graph,
                      "FILE: write the model's blocks there, each measured here, for `show "
                      "partition` to cut");
  command->add_flag("--json", options->json, "The plan event as a JSON line");
  command->footer("Example:\n  trireme plan configs/gpt-nano.toml --ranks 2");
  command->callback([options, &invocation] {
    invocation.action = [options] {
      Refine refine;
      if (options->fit) {
        refine = [&](config::Config& config, const train::Settings& settings,
                     const input::Corpus& corpus) {
          fit(config, settings, corpus,
              {.ranks = options->job.ranks, .tries = false, .json = options->json});
        };
      }
      const TrainingJob job = prepare(options->job, refine);
      if (!options->graph.empty()) {
        const plan::Graph graph = model_graph(train::Settings(job.config), job.corpus);
        command::write_file(options->graph, plan::text_of(graph), "plan");
      }
      if (options->json) {
        std::printf("%s\n", train::plan_event(job.plan).line().c_str());
      } else {
        std::fputs(plan::explain(job.plan).c_str(), stdout);
        std::fflush(stdout);
      }
      if (!job.plan.fits() && !options->fit)
        show_what_fits(job.config, {.ranks = options->job.ranks, .json = options->json});
      return 0;
    };
  });
}

}  // namespace trireme::inline v0::cli
