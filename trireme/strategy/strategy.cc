#include "trireme/strategy/strategy.h"

#include <nlohmann/json.hpp>
#include <span>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/transports.h"
#include "trireme/base/words.h"
#include "trireme/kernel/assignment.h"
#include "trireme/layers/shared_sums.h"
#include "trireme/memory/offload_folder.h"
#include "trireme/models/layer_factory.h"
#include "trireme/ps/worker/optimizer_text.h"
#include "trireme/strategy/model_setup.h"
#include "trireme/strategy/option_check.h"
#include "trireme/strategy/served.h"
#include "trireme/strategy/strategy_impl.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/devices/device_graph.h"
#include "trireme/tensor/saved_count.h"

namespace trireme::inline v0 {
namespace {

constexpr const char* kShareAdvice =
    "Give every rank its share, as trireme::batches and Sampler do.";

void check_graphs(Device device, int rank) {
  const std::string why = tensor::DeviceGraph::unsupported(tensor::at_device(device));
  if (!why.empty())
    throw ConfigError(
        "train.graphs = true, but " + why,
        {.rank = rank, .operation = "strategy", .advice = "Leave it out, or train on a GPU."});
}

// Comes before the model is built, since building already computes.
parallel::SyncPlan prepare(const StrategyOptions& options, std::string_view optimizer,
                           const std::string& optimizer_text,
                           const parallel::StrategyContext& env) {
  parallel::SyncPlan plan = parallel::check_options(
      options, optimizer,
      {.ranks = env.world->size(), .ranks_a_host = env.local_size, .rank = env.world->rank()});
  if (plan.local && env.servers.elastic)
    throw ConfigError("parallel.sync = \"" + options.sync +
                          "\", whose result depends on the number of ranks, cannot be used in an "
                          "elastic job",
                      {.rank = env.world->rank(),
                       .operation = "strategy",
                       .advice = "Use " + one_of(parallel::level_names()) +
                                 ", or start the job with a fixed number of ranks."});
  tensor::set_up_kernels(options.kernel_threads);
  parallel::require_equal_ranks(*env.world,
                                {.processor = plan.local ? "" : parallel::processor_of(env),
                                 .settings = parallel::settings_of(options, optimizer_text)},
                                env.host);
  if (options.graphs) check_graphs(options.device, env.world->rank());
  tensor::set_up_device(*env.world, options.device, env.reproducible);
  return plan;
}

std::optional<tensor::RecordableStream> recordable_stream(const StrategyOptions& options) {
  if (!options.graphs) return std::nullopt;
  return std::optional<tensor::RecordableStream>(std::in_place, tensor::at_device(options.device));
}

parallel::PipelinePlan plan_pipeline(const StrategyOptions& options) {
  if (options.pipeline == 1) return {};
  return {options.schedule, options.pipeline, options.chunks};
}

// A rank that runs a part of a model waits for others in the middle of a pass, perhaps before its
// first bucket. Ranks that share a layer wait in every collective.
parallel::StepParts::Barrier barrier_of(const parallel::Grid& grid) {
  using Barrier = parallel::StepParts::Barrier;
  if (grid.layer != nullptr) return Barrier::EarlyAndWait;
  return grid.pipeline != nullptr ? Barrier::Early : Barrier::WithBucket;
}

// Which micro-batches each rank of the world computes.
kernel::Assignment places_of(const parallel::SyncPlan& plan, const parallel::Grid& grid) {
  kernel::Assignment places = plan.assignment;
  places.together = grid.micro_batch_ranks();
  return places;
}

parallel::StepGuardOptions guard_options(const StrategyOptions& options,
                                         const parallel::ParameterStore& store) {
  parallel::StepGuardOptions guards{.outliers = options.outliers,
                                    .skip_not_finite = options.skip_not_finite,
                                    .skip_key = "train.skip_not_finite"};
  if (options.precision == "fp16")
    guards.loss_scale = options.loss_scale.value_or(LossScaleOptions{});
  if (options.noise_scale) {
    guards.noise.emplace();
    for (const parallel::ParameterUse& use : store.use_of_leaf())
      guards.noise->push_back(store.parameter_of()[use.block][use.parameter]);
  }
  return guards;
}

Duration time_waited(const parallel::Grid& grid, std::span<const parallel::ShardGroups> groups) {
  Duration waited = grid.time_waited();
  for (const parallel::ShardGroups& stage : groups)
    for (const auto& group : {stage.exchange, stage.gather, stage.replicas})
      if (group) waited += group->time_waited();
  return waited;
}

parallel::Replica replica_of(const parallel::ModelParts& parts, optim::Optimizer& optimizer) {
  parallel::Replica copy{.masters = parts.masters()};
  for (const NamedShard& shard : copy.masters)
    copy.weights.push_back(tensor::to_buffer(shard.local));
  for (const NamedShard& shard : optimizer.state())
    copy.moments.push_back(tensor::to_buffer(shard.local));
  for (const auto& [name, buffer] : parts.buffers())
    if (parallel::is_mixed(buffer) && !parts.is_frozen(name))
      copy.buffers.push_back(buffer.detach());
  return copy;
}

}  // namespace

Loss token_loss() {
  return [](const models::Value& output, const MicroBatch& micro) {
    return models::current_layers()->cross_entropy_sum(output.at(0), micro.field("targets"));
  };
}

Strategy::Impl::Impl(const parallel::StrategyContext& own_env, const models::Blocks& own_model,
                     StrategyOptions own_options, std::unique_ptr<optim::Optimizer> own_optimizer,
                     const std::string& optimizer_text)
    : env(parallel::with_events_one_at_a_time(own_env)),
      options(std::move(own_options)),
      plan(prepare(options, own_optimizer->name(), optimizer_text, env)),
      stream(recordable_stream(options)),
      pipeline(plan_pipeline(options)),
      grid(*env.world, pipeline,
           {.expert = options.expert, .context = options.context, .tensor = options.tensor}),
      places(places_of(plan, grid)),
      layers(grid, options.sequence),
      model(own_model),
      parts(parallel::build_model(setup, model, stages_note, mapped)),
      optimizer(std::move(own_optimizer)),
      remote(parallel::remote_of(*optimizer)),
      rows(parallel::connect_rows(parallel::embeddings_in(parts), *optimizer)),
      rate(optimizer->base_learning_rate()),
      sync(parallel::make_strategy_sync(setup, parts, *optimizer,
                                        barrier_of(grid) == parallel::StepParts::Barrier::WithBucket
                                            ? [this] { return engine.enter_barrier(); }
                                            : std::function<Work()>(),
                                        [this] { return optimizer->step_count(); })),
      compression(options.compression, parallel::compressors_of(sync.of_part), env.rank() == 0),
      guards(guard_options(options, parts.whole().store)),
      runner(env, pipeline, grid, parts, sync.of_part,
             {.in_order = plan.in_order(grid.pipeline != nullptr),
              .shares_weights = plan.shards_weights,
              .observer = guards.observer(),
              .loss_gradient = [this](std::int64_t n) { return guards.loss_gradient(n); },
              .graphs = options.graphs}),
      lanes(setup, model, parts.whole()),
      content(grid, pipeline, parts, sync.groups.front()),
      evaluator(setup, parts, *sync.step, runner, places,
                [this](const auto& error) { give_up(error); }),
      engine(env, {.sync = *sync.step,
                   .target = *this,
                   .guards = guards,
                   .assignment = plan.assignment,
                   .data_rank = grid.data().rank(),
                   .loss_ranks = grid.last,
                   .runner = &runner,
                   .local = sync.local,
                   .counts_items = grid.layer == nullptr || grid.layer->rank() == 0,
                   .time_waited =
                       [this] {
                         const Duration waited = time_waited(grid, sync.groups);
                         return remote ? waited + remote->client().time_waited() : waited;
                       },
                   .barrier = barrier_of(grid),
                   .meets_before_update =
                       env.servers.elastic &&
                       (plan.sharded() || grid.pipeline != nullptr || grid.layer != nullptr),
                   .clip = options.clip}) {
  env.assign(places);
  if (parallel::parse_shares(options.shares).automatic) shares.emplace();
  if (options.offload == memory::kOnHost) optimizer->keep_state_on_host();
  optimizer->attach(sync.step->owned(), parts.infos(),
                    sync.groups.front().exchange
                        ? parallel::make_shared_sums(*sync.groups.front().exchange)
                        : nullptr);
  if (options.ema != 0) average.emplace(options.ema, sync.step->owned());
  if (mapped) {
    for (const NamedShard& shard : optimizer->state()) mapped->take(shard.local);
    if (average)
      for (const at::Tensor& memory : average->memory()) mapped->take(memory);
  }
  if (sync.local != nullptr)
    sync.local->attach(replica_of(parts, *optimizer), [this] { parts.refresh(); });
}

StepResult Strategy::Impl::step(const Batch& given, const Loss& given_loss) {
  TRIREME_CHECK(!averaged);
  if (const std::exception_ptr broken = env.world->failure()) std::rethrow_exception(broken);
  const observe::TracedScope span(env.trace.get(), *env.world->waiter(), "step");
  compression.say();
  const Loss loss = [&](const models::Value& output, const MicroBatch& micro) {
    return layers.joined(given_loss(output, micro), micro, parallel::Sequences::Cut);
  };
  const std::uint32_t passes =
      plan.passes_of(grid.data().rank(), given.total, plan.in_order(grid.pipeline != nullptr));
  const auto scope = layers.use();
  try {
    Batch batch = given;
    for (MicroBatch& micro : batch.micro)
      micro = on_device(layers.cut(micro, parallel::Sequences::Cut), options.device);
    engine.begin(batch.step, batch.total, runner.uses(std::span(&passes, 1), true));
    compute(batch, loss, passes);
  } catch (...) {
    give_up(std::current_exception());
    throw;
  }
  StepResult result = engine.finish();
  if (shares) result.share_change = balance(given.total);
  return result;
}

std::optional<ShareChange> Strategy::Impl::balance(std::uint32_t total) {
  auto change = shares->observe(engine.times(), shares_of(plan.assignment, total));
  if (!change) return change;
  plan.assignment.weights = change->shares;
  sync.dealt->set_shares(change->shares);
  places = places_of(plan, grid);
  env.assign(places);
  return change;
}

// A rank goes through all its micro-batches even if one fails: the others wait for its part of each
// reduction, and learn of the error in the vote.
void Strategy::Impl::compute(const Batch& batch, const Loss& loss, std::uint32_t passes) {
  const auto leaves = leaves_of(plan.assignment, batch.total, grid.data().rank());
  parallel::LocalVote& vote = engine.vote();
  check_share(batch, leaves, vote);
  if (!vote.ok && grid.layer != nullptr) refuse_alone(vote, batch.step);
  parallel::Share share{batch.micro, leaves, passes};
  if (vote.ok && lanes.needs_first() && !leaves.empty()) {
    runner.train(share.first(1), batch.step, loss, engine.losses(), vote);
    share = share.after(1);
  }
  if (vote.ok && !leaves.empty() && lanes.start(share.leaves.size())) {
    lanes.train(
        share, batch.step, loss, [this](std::int64_t n) { return guards.loss_gradient(n); },
        runner.feed(), engine.losses(), vote);
  } else {
    runner.train(share, batch.step, loss, engine.losses(), vote);
  }
}

void Strategy::Impl::check_share(const Batch& batch, std::span<const std::uint32_t> leaves,
                                 parallel::LocalVote& vote) const {
  if (batch.micro.size() != leaves.size())
    vote.refuse(23,
                "it was given " + std::to_string(batch.micro.size()) +
                    " micro-batches, but its share is " + std::to_string(leaves.size()),
                kShareAdvice);
  for (std::size_t i = 0; vote.ok && i < leaves.size(); ++i)
    if (batch.micro[i].index != leaves[i])
      vote.refuse(23,
                  "it was given micro-batch " + std::to_string(batch.micro[i].index) +
                      " instead of " + std::to_string(leaves[i]) +
                      (plan.assignment.members > 1
                           ? "; under " + plan.sync +
                                 " micro-batches are dealt out in turn (job.input().assignment())"
                           : ""),
                  kShareAdvice);
  for (const auto& part : parts.parts())
    if (const std::string what = part->store.replaced(part->blocks.members()); !what.empty())
      vote.refuse(20, what, "Make a new Strategy of the changed model.");
}

// The ranks that share this one's layers would wait in them for its passes, and not vote.
void Strategy::Impl::refuse_alone(const parallel::LocalVote& vote, std::int64_t step) const {
  throw_error(static_cast<ExitCode>(vote.exit_code),
              "rank " + std::to_string(env.rank()) + " refuses the step: " + vote.reason,
              {.rank = env.rank(),
               .host = env.host,
               .operation = "step",
               .step = static_cast<long>(step),
               .advice = vote.advice});
}

std::string Strategy::Impl::name_of(std::size_t parameter) const {
  if (parameter >= parts.parameters().size()) return "a row of an embedding";  // ServerSync
  return parts.parameters()[parameter].name;
}

void Strategy::Impl::gather_statistics(std::uint32_t total) {
  for (const auto& part : parts.parts())
    part->statistics.gather(*part->data, plan.assignment, total);
}

void Strategy::Impl::update(double scale) {
  optimizer->apply(rate, scale);
  if (options.offload == memory::kOnHost) {
    // Next the host adds to averages, and copies shards of a parameter that several stages hold.
    const bool averages = average && average->bytes_on_host() > 0;
    if (averages || (grid.pipeline != nullptr && plan.shards_weights)) optimizer->settle();
  }
  if (average) average->update(sync.step->owned());
}

void Strategy::Impl::drop() {
  parts.drop_statistics();
  lanes.drop();
}

void Strategy::Impl::give_up(const std::exception_ptr& error) {
  engine.fail();
  parallel::give_up(*env.world,
                    {env.world, grid.layer, grid.expert, grid.context, grid.tensor, grid.cut,
                     &grid.data(), grid.pipeline},
                    error);
}

std::shared_ptr<void> Strategy::Impl::common_weights() {
  optimizer->settle();
  return sync.local != nullptr ? sync.local->show() : nullptr;
}

void Strategy::Impl::use_average(bool on) {
  if (!average || on == averaged) return;
  optimizer->settle();
  // Servers get their first weights (a checkpoint's) now: later they would get the average.
  if (remote != nullptr) remote->start();
  average->swap(sync.step->owned());
  averaged = on;
  parts.refresh();
  sync.step->publish().wait();
}

std::vector<NamedShard> Strategy::Impl::state(bool with_servers) {
  TRIREME_CHECK(!averaged);
  optimizer->settle();
  if (sync.local != nullptr) {
    sync.local->meet();
    parts.reload_statistics();
  }
  std::vector<NamedShard> shards = content.shards();
  const auto add = [&](const std::string& prefix, std::vector<NamedShard> more) {
    for (NamedShard& shard : more) {
      shard.name.insert(0, prefix);
      shards.push_back(std::move(shard));
    }
  };
  const bool here = with_servers || remote == nullptr;
  if (here) add("optimizer/", optimizer->state());
  if (here && rows) add("", rows->state());
  if (sync.local != nullptr) add("", sync.local->state());
  if (average) add("ema/", average->state(sync.step->owned(), parts.infos()));
  add("", compression.shards());
  return content.of_whole(std::move(shards));
}

std::string Strategy::Impl::metadata() const {
  nlohmann::json all{{"optimizer", optimizer->name()},
                     {"optimizer_steps", optimizer->step_count()}};
  guards.save(all);
  compression.save(all);
  return all.dump();
}

void Strategy::Impl::refuse_metadata() const {
  throw CheckpointError("the training state's metadata is not what a Strategy writes",
                        {.rank = env.rank(),
                         .operation = "checkpoint.resume",
                         .advice = "Use a checkpoint of the same program."});
}

void Strategy::Impl::restored(const std::string& metadata) {
  const auto json = nlohmann::json::parse(metadata, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) refuse_metadata();
  // AdamW's and LAMB's tensors have the same names.
  require_same_optimizer(metadata, this->metadata());
  optimizer->set_step_count(saved_count(json, "optimizer_steps"));
  try {
    guards.restore(json);
    compression.restored(json);
  } catch (const nlohmann::json::exception&) {
    refuse_metadata();
  }
  parts.refresh();
  parts.reload_statistics();
  if (sync.local != nullptr) return sync.local->restored();
  sync.step->publish().wait();
}

Strategy::Strategy(const parallel::StrategyContext& env, const models::Blocks& model,
                   StrategyOptions options, const OptimizerOptions& optimizer)
    : impl_(std::make_unique<Impl>(
          parallel::context_for(env, options.sync, options.server), model, options,
          parallel::is_served(options.sync)
              ? parallel::make_remote_optimizer(env, options.server, optimizer)
              : optim::make_optimizer(optimizer),
          ps::to_text(optimizer))) {}

Strategy::Strategy(const parallel::StrategyContext& env, const models::Blocks& model,
                   StrategyOptions options, std::unique_ptr<optim::Optimizer> optimizer)
    : impl_(std::make_unique<Impl>(env, model, std::move(options), std::move(optimizer),
                                   std::string(optimizer->name()))) {}

Strategy::~Strategy() = default;

StepResult Strategy::step(const Batch& batch, const Loss& loss) {
  return impl_->engine.guarded([&] { return impl_->step(batch, loss); });
}

double Strategy::evaluate(const std::vector<Batch>& batches, const Loss& loss) {
  return evaluate(batches, std::vector{loss}).front();
}

std::vector<double> Strategy::evaluate(const std::vector<Batch>& batches,
                                       const std::vector<Loss>& sums, bool until_stop) {
  auto result = impl_->evaluator.evaluate(batches, sums, until_stop,
                                          [this] { return impl_->common_weights(); });
  if (result.stop_signal != 0) impl_->engine.take_stop(result.stop_signal);
  return std::move(result.means);
}

models::Value Strategy::infer(const MicroBatch& micro) {
  impl_->optimizer->settle();
  return impl_->evaluator.infer(micro, has_whole_weights());
}

void Strategy::set_learning_rate(double learning_rate) { impl_->rate = learning_rate; }
std::int64_t Strategy::offloaded_bytes() const {
  const auto state = impl_->mapped ? impl_->mapped->bytes() : 0;
  const bool on_host = impl_->options.offload == memory::kOnHost;
  return state + (on_host && impl_->average ? impl_->average->bytes_on_host() : 0) +
         static_cast<std::int64_t>(impl_->optimizer->bytes_on_host()) +
         impl_->parts.offloaded_activation_bytes();
}
bool Strategy::has_whole_weights() const {
  const parallel::Grid& grid = impl_->grid;
  return !impl_->plan.shards_weights && grid.pipeline == nullptr && grid.layer == nullptr;
}
std::int64_t Strategy::num_parameters() const { return impl_->parts.num_elements(); }
std::int64_t Strategy::steps_done() const { return impl_->optimizer->step_count(); }
std::string Strategy::server_figures() {
  return impl_->remote != nullptr ? impl_->remote->client().figures() : std::string();
}
int Strategy::stop_signal() const noexcept { return impl_->engine.stop_signal(); }
std::optional<std::int64_t> Strategy::steps_ended() const {
  if (impl_->remote != nullptr && impl_->remote->pending()) return std::nullopt;
  return impl_->engine.steps_ended();
}

StrategyNotes Strategy::notes() const {
  StrategyNotes notes{.stages = impl_->stages_note,
                      .num_lanes = impl_->lanes.count(),
                      .lanes = impl_->lanes.note()};
  if (impl_->remote != nullptr) notes.servers = impl_->remote->client().settings().model.describe();
  if (const parallel::PassGraphs* graphs = impl_->runner.graphs())
    notes.graphs = counted(graphs->recorded(), "graph") + " recorded, replayed for " +
                   counted(graphs->replayed(), "micro-batch", "micro-batches");
  return notes;
}
std::int64_t Strategy::gradient_bytes() const {
  return static_cast<std::int64_t>(impl_->sync.step->gradient_bytes());
}

std::string Strategy::weights_hash() {
  const auto common = impl_->common_weights();
  return impl_->content.hash(impl_->rows ? impl_->rows->weights() : std::vector<NamedShard>());
}

std::vector<NamedShard> Strategy::state() { return impl_->state(/*with_servers=*/true); }
bool Strategy::can_go_on(const std::string& metadata) {
  const auto json = nlohmann::json::parse(metadata, nullptr, /*allow_exceptions=*/false);
  return impl_->remote == nullptr || impl_->remote->can_go_on(saved_count(json, "optimizer_steps"));
}
std::vector<NamedShard> Strategy::own_state() { return impl_->state(/*with_servers=*/false); }

void Strategy::use_average(bool on) { impl_->use_average(on); }

std::string Strategy::metadata() const { return impl_->metadata(); }
void Strategy::restored(const std::string& metadata) { impl_->restored(metadata); }

}  // namespace trireme::inline v0
