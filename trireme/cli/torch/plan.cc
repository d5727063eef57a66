// trireme plan: prints what `train` prints before its first step; starts nothing.
#include <cstdio>
#include <map>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/cli/command.h"
#include "trireme/cli/files.h"
#include "trireme/cli/torch/fit/fit.h"
#include "trireme/cli/torch/training_job.h"
#include "trireme/input/batches.h"
#include "trireme/optim/optimizer.h"
#include "trireme/pipeline/block_profile.h"
#include "trireme/plan/partition/graph_partition.h"
#include "trireme/plan/partition/graph_text.h"
#include "trireme/train/plan/job_plan.h"
#include "trireme/train/training_process.h"

namespace trireme::inline v0::cli {
namespace {

struct PlanOptions {
  TrainingJobOptions job;
  std::string graph;
  bool json = false, fit = false;
};

// The model as a graph of measured blocks, for `trireme show partition`. Builds one block after the
// other and times its forward and backward on a micro-batch of the validation data (the loss is not
// measured). A node's weight bytes include a gradient sum and the optimizer's state; its activation
// bytes are kept from forward to backward (0 if the model family does not know them). A value has
// the size of the block's output. Batch fields are not values, since every stage reads its own.
plan::Graph model_graph(const train::Settings& settings,
                        const std::shared_ptr<const input::SharedCorpus>& corpus) {
  train::set_up_process(settings);
  const std::int64_t micro = settings.batches.micro;
  const auto validation = settings.model.data->validation(corpus->validation(), corpus);
  const MicroBatch example = input::example_of(*validation, micro);
  const auto waiter = RealWaiter::make();
  const std::vector<plan::BlockCost> costs =
      parallel::profile_blocks(settings.model.blocks, example, settings.seed, *waiter);
  const auto activations =
      settings.model.figures(micro, train::examples_of(validation)).activations;
  // Additional bytes per byte of weights: the gradient sum and the moments, and with 16-bit weights
  // the master weights. All of these are fp32.
  const std::string& precision = settings.strategy.precision;
  const double wider = precision == "bf16" || precision == "fp16" ? 2 : 1;
  const double state = 1 + optim::moments_per_element(settings.optimizer) + (wider > 1 ? 1 : 0);
  plan::Graph graph;
  std::map<std::string, std::size_t> value_of;  // by name; the last one written
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const models::BlockSpec& spec = settings.model.blocks.specs()[i];
    for (const std::string& name : spec.reads)
      if (const auto found = value_of.find(name); found != value_of.end())
        graph.values[found->second].to.push_back(static_cast<int>(i));
    const auto weights = static_cast<double>(costs[i].weight_bytes);
    graph.nodes.push_back(
        {.name = costs[i].name,
         .seconds = costs[i].seconds,
         .weight_bytes = static_cast<std::int64_t>(weights * (1 + wider * state)),
         .activation_bytes = activations.size() == costs.size() ? activations[i].kept : 0});
    value_of[spec.writes] = graph.values.size();
    graph.values.push_back({.from = static_cast<int>(i), .bytes = costs[i].output_bytes});
  }
  return graph;
}

int plan_command(const PlanOptions& options) {
  if (!options.graph.empty()) check_can_write(options.graph, "plan");
  const FitOptions fitting{.ranks = options.job.ranks,
                           .ranks_here = options.job.ranks_on_this_host(),
                           .tries = false,
                           .json = options.json};
  Refine refine;
  if (options.fit) {
    refine = [&](config::Config& config, const train::Settings& settings,
                 const input::Corpus& corpus) { fit(config, settings, corpus, fitting); };
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
  if (!job.plan.fits() && !options.fit) show_what_fits(job.config, job.plan, fitting);
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
