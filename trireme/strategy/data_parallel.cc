#include "trireme/strategy/data_parallel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/layers/replicate.h"
#include "trireme/strategy/module_tensors.h"
#include "trireme/strategy/step_engine.h"
#include "trireme/sync/agreement.h"
#include "trireme/sync/autograd_hooks.h"
#include "trireme/sync/batch_statistics.h"
#include "trireme/sync/optimizer_shards.h"
#include "trireme/sync/parameter_store.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/sync/sync_setup.h"
#include "trireme/sync/torch_optimizer.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/random.h"
#include "trireme/tensor/saved_count.h"

namespace trireme::inline v0 {

namespace {

constexpr std::size_t kMostResults = 1000;  // kept for take_results()

parallel::ModuleTensors checked_tensors(torch::nn::Module& module,
                                        const torch::optim::Optimizer& optimizer,
                                        const DataParallelOptions& options) {
  parallel::ModuleTensors tensors = parallel::tensors_of(module);
  parallel::check_module(tensors, options, optimizer);
  return tensors;
}

std::vector<parallel::ParameterUse> uses_of(const parallel::NamedTensors& trainable) {
  std::vector<parallel::ParameterUse> uses;
  for (std::uint32_t i = 0; i < trainable.size(); ++i) uses.push_back({0, i});
  return uses;
}

}  // namespace

struct DataParallel::Impl final : parallel::StepTarget {
  Impl(const parallel::StrategyContext& own_env, torch::nn::Module& module,
       torch::optim::Optimizer& own_optimizer, const DataParallelOptions& own_options)
      : env(own_env),
        options(own_options),
        optimizer(own_optimizer),
        contents(checked_tensors(module, optimizer, options)),
        plan(parallel::plan_sync(options.sync, env.world->size(), 0, env.local_size)),
        statistics(module),
        guards({.skip_not_finite = options.skip_not_finite}),
        sync(plan.sharded() ? make_sharded() : make_plain()),
        engine(env, {.sync = *sync,
                     .target = *this,
                     .guards = guards,
                     .assignment = plan.assignment,
                     .data_rank = env.world->rank(),
                     .loss_ranks = env.world,
                     .time_waited = [this] { return time_waited(); },
                     .barrier = parallel::StepParts::Barrier::WithBucket,
                     .clip = options.clip}),
        feed(*sync, uses_of(contents.trainable), guards.observer()),
        snapshot(module, contents, plan.sharded()),
        hooks(parallel::without_names(contents.trainable),
              [this](std::size_t index, at::Tensor gradient) {
                refuse_direct_call();
                if (!micro_open) open_micro();
                if (micro_open) feed.take(index, std::move(gradient));
              }) {
    env.assign(plan.assignment);
    tensor::set_up_kernels(options.kernel_threads);
    if (env.reproducible) parallel::require_equal_processors(*env.world, env.processor, env.host);
    parallel::replicate(*env.world, contents.distinct, env.host);
    statistics.reload();
    agree_on_seed();
    seed_next();
    env.follow_input([this] { input_begins(); });
  }
  ~Impl() override { env.follow_input({}); }

  std::unique_ptr<parallel::ParameterSync> make_plain() {
    std::vector<std::uint32_t> numbers(contents.trainable.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    return std::make_unique<parallel::PlainSync>(
        *env.world,
        std::vector<std::vector<parallel::Accumulated>>{parallel::accumulators(contents.trainable)},
        std::vector<std::vector<std::uint32_t>>{numbers},
        parallel::whole_slices(contents.trainable),
        parallel::PlainSyncOptions{.bucket_bytes = options.bucket_bytes,
                                   .reduce = env.reduce,
                                   .before_launch = [this] { return engine.enter_barrier(); },
                                   .compression = options.compression});
  }

  // Moves the module's parameters into a store, in one piece of memory. The optimizer gets this
  // rank's shards.
  std::unique_ptr<parallel::ParameterSync> make_sharded() {
    store.emplace(
        std::vector<models::Tie>{},
        parallel::StoreOptions{
            .precision = "own", .owners = plan.owners, .owner = plan.owner_of(env.world->rank())});
    store->add_block({.name = "", .block = parallel::as_one_block(contents.trainable)});
    store->complete();
    std::vector<parallel::OptimizerShards::Shard> owned;
    const auto parts = store->slices();
    for (std::size_t i = 0; i < parts.size(); ++i)
      owned.push_back({parts[i].parameter, parts[i].begin, parts[i].end, store->master(i)});
    shards.emplace(optimizer, parallel::without_names(contents.trainable), std::move(owned));
    groups = parallel::make_shard_groups(*env.world, plan);
    return parallel::make_parameter_sync(
        {.plan = plan,
         .data = *env.world,
         .store = *store,
         .groups = groups,
         .options = {.bucket_bytes = options.bucket_bytes,
                     .before_launch = [this] { return engine.enter_barrier(); }}});
  }

  void refuse_direct_call() const {
    if (shards) shards->refuse_direct_call(options.sync, env.world->rank(), env.host);
  }

  // All ranks take the seed that rank 0 got from torch::manual_seed().
  void agree_on_seed() {
    std::vector<std::int64_t> value{static_cast<std::int64_t>(seed)};
    env.world->broadcast(Buffer::of(std::span(value)), 0, {.label = "seed"}).wait();
    seed = static_cast<std::uint64_t>(value[0]);
  }

  // Seeds for the next micro-batch before it runs. At the end of an epoch the plan does not know
  // that micro-batch yet; it will be this rank's first of a full batch.
  void seed_next() {
    MicroStep next{.index = first_of_full, .batch_number = batches};
    if (const auto plan = env.input_plan()) {
      if (const auto step = plan->peek()) {
        next = *step;
        sync->reserve(step->total);  // here, because hooks must not wait for other ranks
      }
    } else {
      next.index = static_cast<std::uint32_t>(env.world->rank());
    }
    tensor::seed_default_generator(
        tensor::StreamKey{.seed = seed, .step = next.batch_number, .sample = next.index});
  }

  // Called by the first hook of a micro-batch, or by step() if no gradient came. Never throws.
  void open_micro() {
    const auto plan = env.input_plan();
    MicroStep step{.index = static_cast<std::uint32_t>(env.world->rank()),
                   .total = static_cast<std::uint32_t>(env.world->size()),
                   .samples = 1,
                   .last_of_batch = true};
    if (plan) {
      const auto next = plan->peek();
      if (!next || !next->has_data) return;  // step() throws for it
      step = *next;
    }
    if (!batch_open) begin_batch(step.total);
    if (shards) shards->watch();
    micro = step;
    micro_open = true;
    counts_items = counts_items && (own_count || plan);
    engine.vote().count += own_count ? *own_count : micro.samples;
    feed.begin(micro.index, own_count ? 1.0 : static_cast<double>(step.samples));
  }

  void begin_batch(std::uint32_t micro_batches) {
    engine.begin(batches, micro_batches, {});
    batch_open = true;
    counts_items = true;
    if (micro_batches > largest_total) {
      largest_total = micro_batches;
      const auto leaves = leaves_of(plan.assignment, micro_batches, env.world->rank());
      first_of_full = leaves.empty() ? 0 : leaves.front();
    }
  }

  bool step() {
    refuse_direct_call();
    if (!micro_open) open_micro();
    if (!micro_open)
      throw ConfigError("step() without a micro-batch of the Sampler",
                        {.rank = env.world->rank(),
                         .host = env.host,
                         .operation = "step",
                         .advice = "Call step() once for each batch of the Sampler's loader."});
    feed.end(micro.samples);
    statistics.capture();
    micro_open = false;
    add_loss();
    const auto plan = env.input_plan();
    if (plan) plan->consume();
    if (!micro.last_of_batch) {
      seed_next();
      return false;
    }
    const bool taken = finish_batch();
    all_return = !plan || all_return_between(micro, plan->peek());
    const bool taken_too = take_part_without_share();
    seed_next();
    return taken || taken_too;
  }

  // Takes part in batches without a share for this rank, because the other ranks wait for it. True
  // if the last of them was applied.
  bool take_part_without_share() {
    const auto plan = env.input_plan();
    bool taken = false;
    while (plan) {
      const auto next = plan->peek();
      if (!next || next->has_data) break;
      plan->consume();
      begin_batch(next->total);
      taken = finish_batch();
      all_return = taken;  // if all ranks skipped the batch, the others save nothing
    }
    return taken;
  }

  // Adds the micro-batch's loss, and forgets what backward() was given for it.
  void add_loss() {
    const double items = own_count ? 1 : static_cast<double>(micro.samples);
    engine.losses().add(own_loss ? *own_loss * items : std::numeric_limits<double>::quiet_NaN());
    own_loss.reset();
    own_count.reset();
  }

  // A rank without a share of `next` is already in that batch. A rank without a share of `last` has
  // returned from the step() before `last`, unless `last` is the first after a resume.
  bool all_return_between(const MicroStep& last, const std::optional<MicroStep>& next) {
    const bool first = std::exchange(first_here, false);
    return (!first || all_have_share(last)) && (!next || all_have_share(*next));
  }

  // Only the last batch of an epoch may be short.
  bool all_have_share(const MicroStep& step) const {
    if (!step.last_of_epoch) return true;
    for (int rank = 0; rank < env.world->size(); ++rank)
      if (leaves_of(plan.assignment, step.total, rank).empty()) return false;
    return true;
  }

  // The loader starts a pass, so the plan now knows the first micro-batch. After a resume the first
  // batch may have no share for this rank, and no earlier step() could take part in it.
  void input_begins() {
    if (micro_open || batch_open) return;
    take_part_without_share();
    seed_next();
  }

  // False: all ranks skipped the batch.
  bool finish_batch() {
    batch_open = false;
    parallel::LocalVote& vote = engine.vote();
    if (const std::string what = snapshot.difference(); !what.empty())
      vote.refuse(static_cast<int>(ExitCode::UserCode), what,
                  "Make a new DataParallel of the changed module.");
    ++batches;  // a refused batch counts, too: the next one has another number
    const StepResult done = engine.finish();
    BatchResult result{.gradient_norm = done.gradient_norm,
                       .learning_rate = done.learning_rate,
                       .communication = *done.communication,
                       .skipped = done.skipped,
                       .skipped_steps = done.skipped_steps};
    if (counts_items) result.count = done.count;
    if (done.count > 0 && !std::isnan(done.loss)) result.loss = done.loss;
    if (done.skipped.empty()) gradient_norm = done.gradient_norm.value_or(0);
    results.push_back(std::move(result));
    if (results.size() > kMostResults) results.pop_front();
    return done.skipped.empty();
  }

  Duration time_waited() const {
    Duration sum = env.world->time_waited();
    for (const auto& group : {groups.exchange, groups.gather, groups.replicas})
      if (group) sum += group->time_waited();
    return sum;
  }

  // StepTarget
  std::string name_of(std::size_t parameter) const override {
    return contents.trainable[parameter].first;
  }
  double learning_rate() const override {
    return optimizer.param_groups().front().options().get_lr();
  }
  void check_first_gradients() override {}
  void fold_statistics(std::uint32_t total, bool) override {
    statistics.fold(*env.world, plan.assignment, total);
  }
  void update(double scale) override {
    const c10::AutoGradMode no_grad(false);
    const auto sums = sync->owned();
    for (std::size_t i = 0; i < sums.size(); ++i) {
      at::Tensor parameter = updated(i);
      const Buffer sum{const_cast<void*>(sums[i].gradient),
                       static_cast<std::size_t>(sums[i].size()), sums[i].master_dtype};
      at::Tensor gradient = tensor::view_of(sum, parameter.sizes()).mul_(scale);
      parameter.mutable_grad() = gradient.to(parameter.scalar_type());
    }
    if (shards) shards->trust();
    optimizer.step();
    ++applied;
    for (std::size_t i = 0; i < sums.size(); ++i) updated(i).mutable_grad().reset();
  }
  void mixed() override {}
  void drop() override { statistics.drop(); }

  // What the optimizer updates for owned()[i]: the parameter, or this rank's shard of it.
  at::Tensor updated(std::size_t i) {
    return shards ? shards->shards()[i].tensor : contents.trainable[i].second;
  }

  std::vector<NamedShard> state() {
    std::vector<NamedShard> state;
    for (const auto& [name, tensor] : contents.all)
      state.push_back({.name = name,
                       .dtype = tensor::dtype_of(tensor),
                       .shape = tensor.sizes().vec(),
                       .begin = 0,
                       .end = tensor.numel(),
                       .local = tensor.detach()});
    const auto slices = sync->owned();
    for (std::size_t i = 0; i < slices.size(); ++i) {
      const auto& [name, parameter] = contents.trainable[slices[i].parameter];
      for (const auto& [kind, tensor] : parallel::state_tensors(optimizer, updated(i)))
        state.push_back({.name = "optimizer/" + name + "." + kind,
                         .dtype = tensor::dtype_of(tensor),
                         .shape = parameter.sizes().vec(),
                         .begin = slices[i].begin,
                         .end = slices[i].end,
                         .local = tensor.detach()});
    }
    return state;
  }

  // Updates that the optimizer has counted; on a rank that owns nothing, those that we counted.
  std::int64_t optimizer_updates() {
    return sync->owned().empty() ? applied : parallel::updates(optimizer, updated(0));
  }

  parallel::StrategyContext env;
  DataParallelOptions options;
  torch::optim::Optimizer& optimizer;
  parallel::ModuleTensors contents;
  parallel::SyncPlan plan;
  parallel::BatchStatistics statistics;
  std::optional<parallel::ParameterStore> store;    // under ZeRO
  std::optional<parallel::OptimizerShards> shards;  // under ZeRO
  parallel::ShardGroups groups;                     // under ZeRO

  std::uint64_t seed = at::detail::getDefaultCPUGenerator().current_seed();
  std::int64_t batches = 0;  // finished, including refused ones
  std::int64_t applied = 0;
  bool batch_open = false, micro_open = false;
  bool first_here = true;  // no step() has returned since the start or a resume
  bool all_return = true;  // StepVoter
  std::uint32_t largest_total = 0, first_of_full = 0;
  MicroStep micro;
  // What DataParallel::backward() was given for the open micro-batch.
  std::optional<std::int64_t> own_count;
  std::optional<double> own_loss;
  bool counts_items = true;  // the batch's count is of samples or tokens, not micro-batches
  std::deque<BatchResult> results;
  double gradient_norm = 0;

  parallel::StepGuards guards;
  std::unique_ptr<parallel::ParameterSync> sync;
  parallel::StepEngine engine;
  parallel::GradientFeed feed;
  parallel::ParameterSnapshot snapshot;  // after `sync`, which may move them
  parallel::GradientHooks hooks;
};

DataParallel::DataParallel(const parallel::StrategyContext& env, torch::nn::Module& module,
                           torch::optim::Optimizer& optimizer, DataParallelOptions options)
    : impl_(std::make_unique<Impl>(env, module, optimizer, options)) {}

DataParallel::~DataParallel() = default;

void DataParallel::backward(const at::Tensor& mean) {
  impl_->own_loss = mean.item<double>();
  mean.backward();
}

void DataParallel::backward(const at::Tensor& sum, std::int64_t count) {
  impl_->own_count = count;
  impl_->own_loss = sum.item<double>();
  sum.backward();
}

std::vector<BatchResult> DataParallel::take_results() {
  const std::deque<BatchResult> results = std::exchange(impl_->results, {});
  return {results.begin(), results.end()};
}

bool DataParallel::step() {
  return impl_->engine.guarded([this] { return impl_->step(); });
}

std::int64_t DataParallel::steps() const noexcept { return impl_->applied; }
std::int64_t DataParallel::skipped_steps() const noexcept { return impl_->guards.skipped_steps(); }
double DataParallel::gradient_norm() const noexcept { return impl_->gradient_norm; }
int DataParallel::stop_signal() const noexcept { return impl_->engine.stop_signal(); }
bool DataParallel::all_ranks_return() const { return impl_->all_return; }

std::string DataParallel::weights_hash() { return parallel::hash_of(impl_->contents.all); }

std::vector<NamedShard> DataParallel::state() { return impl_->state(); }

std::string DataParallel::metadata() const {
  nlohmann::json all{{"batches", impl_->batches},
                     {"steps", impl_->applied},
                     {"seed", impl_->seed},
                     {"optimizer", parallel::name_of(impl_->optimizer)},
                     {"optimizer_updates", impl_->optimizer_updates()}};
  impl_->guards.save(all);
  return all.dump();
}

void DataParallel::restored(const std::string& metadata) {
  const auto json = nlohmann::json::parse(metadata, nullptr, /*allow_exceptions=*/false);
  const std::int64_t batches = saved_count(json, "batches"), steps = saved_count(json, "steps");
  const std::int64_t updates = saved_count(json, "optimizer_updates");
  if (!json.contains("seed") || !json["seed"].is_number_integer())
    throw CheckpointError("the training state's metadata lacks \"seed\"",
                          {.rank = impl_->env.world->rank(),
                           .operation = "checkpoint.resume",
                           .advice = "Use a checkpoint of the same program."});
  require_same_optimizer(metadata, this->metadata());
  impl_->guards.restore(json);
  impl_->batches = batches;
  impl_->applied = steps;
  impl_->seed = json["seed"].get<std::uint64_t>();
  for (std::size_t i = 0; i < impl_->sync->owned().size(); ++i)
    parallel::set_updates(impl_->optimizer, impl_->updated(i), updates);
  impl_->statistics.reload();
  impl_->first_here = true;
  impl_->seed_next();
}

}  // namespace trireme::inline v0
