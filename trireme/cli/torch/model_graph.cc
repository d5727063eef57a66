#include "trireme/cli/torch/model_graph.h"

#include <map>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/input/batches.h"
#include "trireme/optim/optimizer.h"
#include "trireme/pipeline/block_profile.h"
#include "trireme/train/training_process.h"

namespace trireme::inline v0::cli {

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

}  // namespace trireme::inline v0::cli
