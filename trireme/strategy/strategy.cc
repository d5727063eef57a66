#include "trireme/strategy/strategy.h"

#include <algorithm>
#include <new>
#include <span>

#include "trireme/base/error.h"
#include "trireme/layers/group_layers.h"
#include "trireme/layers/replicate.h"
#include "trireme/layers/shared_sums.h"
#include "trireme/layers/tensor/layers.h"
#include "trireme/models/layer_factory.h"
#include "trireme/pipeline/block_profile.h"
#include "trireme/strategy/option_check.h"
#include "trireme/strategy/strategy_impl.h"
#include "trireme/sync/cut_sync.h"
#include "trireme/sync/sync_setup.h"
#include "trireme/tensor/allocation.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/determinism.h"

namespace trireme::inline v0 {
namespace {

parallel::PipelinePlan plan_pipeline(const StrategyOptions& options) {
  if (options.pipeline == 1) return {};
  return {options.schedule, options.pipeline, options.chunks};
}

// Null: layers are whole.
std::shared_ptr<const models::LayerFactory> layers_of(const parallel::Grid& grid,
                                                      const StrategyOptions& options) {
  if (grid.layer == nullptr) return nullptr;
  std::shared_ptr<const models::LayerFactory> layers = models::local_layers();
  if (grid.tensor != nullptr) layers = parallel::tensor_layers(*grid.tensor, options.sequence);
  if (grid.expert != nullptr) layers = parallel::expert_layers(*grid.expert, std::move(layers));
  if (grid.context != nullptr) layers = parallel::context_layers(*grid.context, std::move(layers));
  return layers;
}

parallel::SyncPlan checked(const StrategyOptions& options, std::string_view optimizer,
                           const parallel::StrategyContext& env) {
  parallel::SyncPlan plan = parallel::check_options(
      options, optimizer,
      {.ranks = env.world->size(), .ranks_a_host = env.local_size, .rank = env.world->rank()});
  // Before the model is built, since building already computes.
  if (env.reproducible && !plan.local)
    parallel::require_equal_processors(*env.world, env.processor, env.host);
  return plan;
}

// Before the model is built, since building already computes.
StrategyOptions prepared(StrategyOptions options) {
  if (options.kernel_threads > 0) {
    tensor::set_up_process({.kernel_threads = options.kernel_threads});
  } else if (!tensor::process_is_set_up()) {
    tensor::set_up_process({});
  }
  return options;
}

}  // namespace

Loss token_loss() {
  return [](const models::Value& output, const MicroBatch& micro) {
    return models::current_layers()->cross_entropy_sum(output.at(0), micro.field("targets"));
  };
}

Strategy::Impl::Impl(const parallel::StrategyContext& own_seat, const models::Blocks& own_model,
                     StrategyOptions own_options, std::unique_ptr<optim::Optimizer> own_optimizer)
    : env(parallel::with_events_one_at_a_time(own_seat)),
      plan(checked(own_options, own_optimizer->name(), env)),
      pipeline(plan_pipeline(own_options)),
      grid(*env.world, pipeline,
           {.expert = own_options.expert,
            .context = own_options.context,
            .tensor = own_options.tensor}),
      layers(layers_of(grid, own_options)),
      options(prepared(std::move(own_options))),
      parts(build(own_model)),
      model(own_model),
      sync((offload_masters(), make_sync())),
      optimizer(std::move(own_optimizer)),
      not_finite(options.skip_not_finite, "train.skip_not_finite") {
  if (options.precision == "fp16")
    loss_scale.emplace(options.loss_scale.value_or(LossScaleOptions{}));
  make_hooks();
  env.assign(places());
  learning_rate = optimizer->base_learning_rate();
  optimizer->attach(sync->owned(), parts.infos(),
                    groups.exchange ? parallel::make_shared_sums(*groups.exchange) : nullptr);
  if (mapped)
    for (const NamedShard& shard : optimizer->state()) mapped->take(shard.local);
  make_helpers();
  if (local != nullptr) local->attach(replica(), [this] { parts.refresh(); });
  parts.train(true);
  parts.recompute(memory::parse_recompute(options.recompute, own_model.specs().size()));
  parts.offload_activations(options.offload_activations);
}

// Blocks that ask no factory for layers are whole on every rank.
parallel::ModelParts Strategy::Impl::build(const models::Blocks& blocks) {
  const parallel::ModelParts::Options own = part_options(blocks);
  const auto scope = use_layers();
  parallel::ModelParts built = [&] {
    try {
      return parallel::ModelParts(blocks, pipeline, own);
    } catch (const std::bad_alloc&) {
      tensor::refuse_allocation("the model's blocks");
    }
  }();
  bool cut = grid.tensor == nullptr, shared = grid.expert == nullptr;
  for (const parallel::ModelTensor& one : built.parameters()) {
    cut |= one.part.of > 1;
    shared |= one.part.places > 1;
  }
  if (!cut) parallel::refuse_uncut_model(options.tensor, env.world->rank());
  if (!shared) parallel::refuse_model_without_experts(options.expert, env.world->rank());
  return built;
}

// Called before anything takes the addresses of the masters.
void Strategy::Impl::offload_masters() {
  if (options.offload.empty()) return;
  mapped.emplace(options.offload);
  for (const at::Tensor& memory : parts.cold_memory()) mapped->take(memory);
}

parallel::ModelParts::Options Strategy::Impl::part_options(const models::Blocks& blocks) {
  return {.seed = options.seed,
          .cut = agreed_cut(blocks),
          .data = grid.of_stage,
          .pipeline = grid.pipeline,
          .store = [this](comm::Communicator& data) { return store_options(data); }};
}

// Rank 0 measures and broadcasts its cut.
std::vector<std::size_t> Strategy::Impl::agreed_cut(const models::Blocks& blocks) {
  std::vector<std::size_t> cut = parallel::even_cut(blocks.specs().size(), pipeline.stages());
  if (grid.pipeline == nullptr || !options.example) return cut;
  if (env.world->rank() == 0) {
    try {
      cut = measured_cut(blocks);
    } catch (const std::exception& error) {  // a fault in a block shows in the first step
      stages_note = std::string("stages have equal numbers of blocks: ") + error.what();
    }
  }
  std::vector<std::int64_t> words(cut.begin(), cut.end());
  env.world->broadcast(Buffer::of(std::span(words)), 0, {.label = "pipeline stages"}).wait();
  return {words.begin(), words.end()};
}

std::vector<std::size_t> Strategy::Impl::measured_cut(const models::Blocks& blocks) {
  const std::vector<plan::BlockCost> costs =
      parallel::profile_blocks(blocks, options.example(), options.seed, *env.world->waiter());
  double sum = 0;
  for (const plan::BlockCost& cost : costs) sum += cost.seconds;
  if (sum <= 0) return parallel::even_cut(costs.size(), pipeline.stages());  // a simulated clock
  const plan::Partition partition = plan::partition_chain(costs, {.stages = pipeline.stages()});
  stages_note = text_of(partition, costs);
  std::vector<std::size_t> cut;
  for (const plan::StageCost& stage : partition.stages)
    cut.push_back(static_cast<std::size_t>(stage.first));
  cut.push_back(costs.size());
  return cut;
}

parallel::StoreOptions Strategy::Impl::store_options(comm::Communicator& data) {
  return {.precision = options.precision,
          .owners = plan.owners,
          .owner = plan.owner_of(data.rank()),
          .shards_weights = plan.shards_weights,
          .replicate = [this, &data](const parallel::NamedTensors& tensors) {
            parallel::replicate(data, tensors, env.host);
          }};
}

std::unique_ptr<parallel::StepSync> Strategy::Impl::make_sync() {
  if (grid.pipeline != nullptr) return of_cut_layers(make_pipeline_sync());
  if (plan.sharded()) groups = parallel::make_shard_groups(grid.data(), plan);
  auto whole_model = make_stage_sync(whole(), groups);
  gradients = whole_model.get();
  return of_cut_layers(std::move(whole_model));
}

// One group gathers the weights of all of this rank's stages, in the order of its passes.
std::unique_ptr<parallel::StepSync> Strategy::Impl::make_pipeline_sync() {
  std::vector<parallel::ShardGroups> own(parts.parts().size());
  std::vector<parallel::ParameterStore*> stores;
  for (std::size_t i = 0; i < own.size(); ++i) {
    parallel::ModelPart& part = *parts.parts()[i];
    if (plan.sharded()) own[i] = parallel::make_shard_groups(*part.data, plan, i == 0);
    stores.push_back(&part.store);
  }
  groups = own.front();
  std::unique_ptr<parallel::UnitGather> gather;
  if (plan.shards_weights)
    gather = std::make_unique<parallel::UnitGather>(*groups.gather, stores, env.on_shard_event);
  std::vector<std::unique_ptr<parallel::ParameterSync>> syncs;
  for (std::size_t i = 0; i < own.size(); ++i)
    syncs.push_back(
        make_stage_sync(*parts.parts()[i], own[i], gather.get(), static_cast<std::uint32_t>(i)));
  auto all = std::make_unique<parallel::PipelineSync>(*grid.pipeline, pipeline, parts,
                                                      std::move(gather), std::move(syncs));
  stages = all.get();
  return all;
}

std::unique_ptr<parallel::StepSync> Strategy::Impl::of_cut_layers(
    std::unique_ptr<parallel::StepSync> own) {
  if (grid.cut == nullptr) return own;
  return std::make_unique<parallel::CutSync>(std::move(own), *grid.cut, grid.tensor_ranks(), parts);
}

std::unique_ptr<parallel::ParameterSync> Strategy::Impl::make_stage_sync(
    parallel::ModelPart& part, const parallel::ShardGroups& owners, parallel::UnitGather* gather,
    std::uint32_t number) {
  const auto gate =
      enters_barrier_first() ? std::function<Work()>() : [this] { return enter_barrier(); };
  const parallel::SyncSetup setup{.plan = plan,
                                  .data = *part.data,
                                  .store = part.store,
                                  .groups = owners,
                                  .options = {.bucket_bytes = options.bucket_bytes,
                                              .overlap = options.overlap,
                                              .reduce = env.reduce,
                                              .before_launch = gate,
                                              .compression = options.compression,
                                              .seed = options.seed},
                                  .on_event = env.on_shard_event,
                                  .in_pipeline = grid.pipeline != nullptr,
                                  .gather = gather,
                                  .part = number};
  if (!plan.local) return parallel::make_parameter_sync(setup);
  auto own = std::make_unique<parallel::LocalSync>(
      std::make_unique<parallel::PlainSync>(setup),
      parallel::make_mixer(plan.sync, *part.data, options.local), options.local,
      [this] { return optimizer->step_count(); });
  local = own.get();
  return own;
}

void Strategy::Impl::make_hooks() {
  if (grid.pipeline != nullptr) {
    if (options.lanes > 1) lanes_note = "a rank of a pipeline runs one pass at a time";
    runner = std::make_unique<parallel::PipelineRunner>(env, pipeline, grid, parts, *stages,
                                                        plan.shards_weights);
    return;
  }
  if (plan.sharded()) pins.emplace(*gradients);
  if (grid.layer != nullptr && options.lanes > 1)
    lanes_note = "ranks that share a layer go through it together, one micro-batch at a time";
  hooks = std::make_unique<parallel::GradientHooks>(
      store().leaves(),
      [this](std::size_t leaf, at::Tensor gradient) { take(leaf, std::move(gradient)); });
}

parallel::Replica Strategy::Impl::replica() {
  parallel::Replica copy{.masters = parts.masters()};
  for (const NamedShard& shard : copy.masters)
    copy.weights.push_back(tensor::to_buffer(shard.local));
  for (const NamedShard& shard : optimizer->state())
    copy.moments.push_back(tensor::to_buffer(shard.local));
  for (const auto& [name, buffer] : parts.buffers())
    if (c10::isFloatingType(buffer.scalar_type()) && buffer.numel() > 0)
      copy.buffers.push_back(tensor::to_buffer(buffer));
  return copy;
}

Work Strategy::Impl::enter_barrier() {
  return parallel::enter_barrier(*env.world, {.batch = step, .total = total}, env.host);
}

Strategy::Strategy(const parallel::StrategyContext& env, const models::Blocks& model,
                   StrategyOptions options, std::unique_ptr<optim::Optimizer> optimizer)
    : impl_(std::make_unique<Impl>(env, model, std::move(options), std::move(optimizer))) {}

// Losses need the layers too: they may see a part of the logits only.
std::unique_ptr<models::LayersScope> Strategy::Impl::use_layers() const {
  return layers ? std::make_unique<models::LayersScope>(layers) : nullptr;
}

Strategy::~Strategy() {
  if (!impl_->failed && std::uncaught_exceptions() == impl_->exceptions)
    parallel::leave(*impl_->env.world);
}

StepResult Strategy::step(const Batch& batch, const Loss& loss) {
  try {
    return impl_->run(batch, loss);
  } catch (const StepRefused&) {
    impl_->drop();
    throw;  // every rank throws it and may go on
  } catch (...) {
    impl_->failed = true;
    throw;
  }
}

double Strategy::evaluate(const std::vector<Batch>& batches, const Loss& loss) {
  return impl_->evaluate(batches, {loss}).front();
}

std::vector<double> Strategy::evaluate(const std::vector<Batch>& batches,
                                       const std::vector<Loss>& sums) {
  return impl_->evaluate(batches, sums);
}

models::Value Strategy::infer(const MicroBatch& micro) { return impl_->infer(micro); }

void Strategy::set_learning_rate(double learning_rate) { impl_->learning_rate = learning_rate; }
std::int64_t Strategy::offloaded_bytes() const {
  const auto state = impl_->mapped ? static_cast<std::int64_t>(impl_->mapped->bytes()) : 0;
  return state + impl_->parts.offloaded_activation_bytes();
}
bool Strategy::has_whole_weights() const { return impl_->has_whole_weights(); }
std::int64_t Strategy::num_parameters() const { return impl_->parts.num_elements(); }
int Strategy::lanes() const { return impl_->lanes ? impl_->lanes->count() : 1; }
int Strategy::stop_signal() const noexcept { return impl_->stop_signal; }
std::string Strategy::lanes_note() const { return impl_->lanes_note; }
std::string Strategy::stages_note() const { return impl_->stages_note; }
std::int64_t Strategy::gradient_bytes() const {
  return static_cast<std::int64_t>(impl_->sync->gradient_bytes());
}

std::string Strategy::weights_hash() { return impl_->weights_hash(); }

std::vector<NamedShard> Strategy::state() { return impl_->state(); }

void Strategy::use_average(bool on) { impl_->use_average(on); }

std::string Strategy::metadata() const { return impl_->metadata(); }
void Strategy::restored(const std::string& metadata) { impl_->restored(metadata); }

}  // namespace trireme::inline v0
