#include "trireme/strategy/model_setup.h"

#include <new>
#include <span>

#include "trireme/layers/replicate.h"
#include "trireme/memory/offload_folder.h"
#include "trireme/pipeline/block_profile.h"
#include "trireme/tensor/allocation.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {
namespace {

std::vector<std::size_t> measured_cut(const StrategySetup& setup, const models::Blocks& blocks,
                                      std::string& note) {
  const int stages = setup.pipeline.stages();
  const std::vector<plan::BlockCost> costs =
      profile_blocks(blocks, setup.options.example(), setup.options.seed,
                     *setup.env.world->waiter(), setup.options.device);
  double sum = 0;
  for (const plan::BlockCost& cost : costs) sum += cost.seconds;
  if (sum <= 0) return even_cut(costs.size(), stages);  // a simulated clock
  const plan::Partition partition = plan::partition_chain(costs, {.stages = stages});
  note = text_of(partition, costs);
  std::vector<std::size_t> cut;
  for (const plan::StageCost& stage : partition.stages)
    cut.push_back(static_cast<std::size_t>(stage.first));
  cut.push_back(costs.size());
  return cut;
}

// Rank 0 measures and broadcasts its cut.
std::vector<std::size_t> agreed_cut(const StrategySetup& setup, const models::Blocks& blocks,
                                    std::string& note) {
  std::vector<std::size_t> cut = even_cut(blocks.specs().size(), setup.pipeline.stages());
  if (setup.grid.pipeline == nullptr || !setup.options.example) return cut;
  if (setup.env.world->rank() == 0) {
    try {
      cut = measured_cut(setup, blocks, note);
    } catch (const std::exception& error) {  // a fault in a block shows in the first step
      note = std::string("stages have equal numbers of blocks: ") + error.what();
    }
  }
  std::vector<std::int64_t> words(cut.begin(), cut.end());
  setup.env.world->broadcast(Buffer::of(std::span(words)), 0, {.label = "pipeline stages"}).wait();
  return {words.begin(), words.end()};
}

StoreOptions store_options(const StrategySetup& setup, comm::Communicator& data) {
  return {.precision = setup.options.precision,
          .owners = setup.plan.owners,
          .owner = setup.plan.owner_of(data.rank()),
          .shards_weights = setup.plan.shards_weights,
          .device = setup.options.device,
          .cold_on_host = setup.options.offload == memory::kOnHost && !setup.plan.local,
          .replicate = [&data, host = setup.env.host](const NamedTensors& tensors) {
            replicate(data, tensors, host);
          }};
}

}  // namespace

ModelParts build_model(const StrategySetup& setup, const models::Blocks& blocks, std::string& note,
                       std::optional<MappedState>& mapped) {
  const ModelParts::Options options{
      .seed = setup.options.seed,
      .cut = agreed_cut(setup, blocks, note),
      .data = setup.grid.of_stage,
      .pipeline = setup.grid.pipeline,
      .store = [&setup](comm::Communicator& data) { return store_options(setup, data); }};
  const auto scope = setup.layers.use();
  ModelParts parts = [&] {
    try {
      return ModelParts(blocks, setup.pipeline, options);
    } catch (const std::bad_alloc&) {
      tensor::refuse_allocation("the model's blocks");
    }
  }();
  setup.layers.check_model(parts, setup.env.world->rank());
  const std::string& offload = setup.options.offload;
  // Made before anything takes the addresses of the masters.
  if (!offload.empty() && offload != memory::kOnHost) mapped.emplace(offload);
  const memory::RecomputePolicy policy =
      memory::parse_recompute(setup.options.recompute, blocks.specs().size());
  const std::string& activations = setup.options.offload_activations;
  for (const auto& part : parts.parts()) {
    if (mapped)
      for (const at::Tensor& memory : part->store.cold_memory()) mapped->take(memory);
    part->blocks.recompute(policy);
    if (!activations.empty())
      part->blocks.offload(
          memory::make_activation_store(activations, tensor::at_device(setup.options.device)));
  }
  parts.train(true);
  return parts;
}

}  // namespace trireme::inline v0::parallel
