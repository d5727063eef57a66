// trireme plan: what train prints before its first step; starts nothing.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "trireme/cli/command.h"
#include "trireme/cli/training_job.h"
#include "trireme/train/job_plan.h"

namespace trireme {
inline namespace v0 {
namespace cli {

void add_plan(CLI::App& app, Invocation& invocation) {
  struct Options {
    TrainingJobOptions job;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("plan", "Say what a training job takes; starts nothing");
  add_training_options(*command, options->job);
  command->add_flag("--json", options->json, "The plan event as a JSON line");
  command->footer("Example:\n  trireme plan configs/gpt-nano.toml --ranks 2");
  command->callback([options, &invocation] {
    invocation.action = [options] {
      const TrainingJob job = prepare(options->job);
      if (options->json) {
        std::printf("%s\n", train::plan_event(job.plan).line().c_str());
      } else {
        std::fputs(plan::explain(job.plan).c_str(), stdout);
      }
      return 0;
    };
  });
}

}  // namespace cli
}  // namespace v0
}  // namespace trireme
