#include "trireme/strategy/data_parallel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/memory/recompute.h"
#include "trireme/strategy/served.h"
#include "trireme/strategy/shares.h"
#include "trireme/strategy/step_engine.h"
#include "trireme/strategy/trained_module.h"
#include "trireme/strategy/user_loop.h"
#include "trireme/sync/agreement.h"
#include "trireme/sync/batch_statistics.h"
#include "trireme/sync/buckets/autograd_hooks.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/sync/torch_optimizer.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/random.h"
#include "trireme/tensor/saved_count.h"

namespace trireme::inline v0 {

namespace {

constexpr std::size_t kMostResults = 1000;  // kept for take_results()

std::vector<parallel::ParameterUse> uses_of(const parallel::NamedTensors& trainable) {
  std::vector<parallel::ParameterUse> uses;
  for (std::uint32_t i = 0; i < trainable.size(); ++i) uses.push_back({0, i});
  return uses;
}

parallel::StrategyContext with_world(parallel::StrategyContext env, comm::Communicator* group) {
  if (group != nullptr) env.world = group;
  return env;
}

// For a worker that trains on its own, its share of the batch is a whole batch.
MicroStep own_share(const parallel::StrategyContext& env, MicroStep step) {
  if (!env.own_world) return step;
  const auto leaves =
      leaves_of(kernel::contiguous(env.servers.workers), step.total, env.servers.worker);
  const auto found = std::find(leaves.begin(), leaves.end(), step.index);
  step.index = static_cast<std::uint32_t>(found - leaves.begin());
  step.total = static_cast<std::uint32_t>(leaves.size());
  return step;
}

}  // namespace

struct DataParallel::Impl final : parallel::StepTarget {
  Impl(const parallel::StrategyContext& own_env, torch::nn::Module& module,
       torch::optim::Optimizer& own_optimizer, const DataParallelOptions& own_options)
      : options(own_options),
        reader(own_env.input,
               {.begin_pass =
                    [this_one = std::weak_ptr(self)] {
                      if (const auto own = this_one.lock()) (*own)->input_begins();
                    },
                .begin_micro = [this] { seed_for_next(); },
                .take_part =
                    [this] {  // in this step(), or in that of another DataParallel
                      engine.guarded([this] { took_part = take_part_without_share(); });
                      reserve_next();
                    },
                .other_ends = [this] { statistics.hold(); }}),
        group(parallel::make_loop_group(reader, own_env, options.sync)),
        env(parallel::context_for(with_world(own_env, group.get()), options.sync,
                                  parallel::server_options_of(options))),
        trained(env, module, own_optimizer, options, [this] { return engine.enter_barrier(); }),
        statistics(module),
        guards({.skip_not_finite = options.skip_not_finite}),
        engine(env, {.sync = trained.sync(),
                     .target = *this,
                     .guards = guards,
                     .assignment = trained.plan().assignment,
                     .data_rank = env.world->rank(),
                     .loss_ranks = env.world,
                     .time_waited = [this] { return trained.time_waited(); },
                     .barrier = parallel::StepParts::Barrier::WithBucket,
                     .meets_before_update = env.servers.elastic && trained.plan().sharded(),
                     .clip = options.clip}),
        feed(trained.sync(), uses_of(trained.tensors().trainable), guards.observer()),
        snapshot(module, trained.tensors(), trained.plan().sharded() || trained.plan().served),
        hooks(parallel::without_names(trained.tensors().trainable),
              [this](std::size_t index, at::Tensor gradient) {
                trained.refuse_direct_call();
                if (!reader.takes_gradients()) return;
                if (!micro_open) open_micro();
                if (micro_open) take(index, std::move(gradient));
              }) {
    env.input->assign(own_shares());
    statistics.reload();
    seed = parallel::agreed_seed(*env.world, seed);
    seed_next();
  }

  // The shares in which the Sampler is to deal out batches.
  kernel::Assignment own_shares() const {
    return env.own_world ? kernel::contiguous(env.servers.workers) : trained.plan().assignment;
  }

  // Before the first passes.
  void seed_next() {
    reserve_next();
    seed_for_next();
  }

  // After a micro-batch. Another DataParallel may compute the same one next, and draws from streams
  // of it. The Sampler lets one of them call seed_for_next() before its next micro-batch.
  void seed_after_micro() {
    reserve_next();
    if (reader.has_others()) return seed_for(micro, reader.consumers());
    seed_for_next();
  }

  // Memory is reserved here, because hooks must not wait for other ranks.
  void reserve_next() {
    if (const auto step = reader.peek()) trained.sync().reserve(own_share(env, *step).total);
  }

  // At an epoch's end the plan does not know the next micro-batch: it is the first of a full batch.
  void seed_for_next() {
    MicroStep next{.index = first_of_full, .batch_number = batches};
    if (const auto step = reader.peek()) next = *step;
    if (!reader.has_plan()) next.index = static_cast<std::uint32_t>(env.world->rank());
    seed_for(next, 0);
  }

  void seed_for(const MicroStep& step, std::uint32_t part) {
    const auto& tensors = trained.tensors().distinct;
    tensor::seed_default_generator(
        tensor::StreamKey{
            .seed = seed, .step = step.batch_number, .sample = step.index, .layer = part},
        tensors.empty() ? at::Device(at::kCPU) : tensors.front().second.device());
  }

  // Called by the first hook of a micro-batch, or by step() if no gradient came. Never throws.
  void open_micro() {
    const bool plan = reader.has_plan();
    MicroStep step{.index = static_cast<std::uint32_t>(env.world->rank()),
                   .total = static_cast<std::uint32_t>(env.world->size()),
                   .samples = 1,
                   .batch_number = batches,
                   .last_of_batch = true};
    if (!plan && !trained.plan().assignment.weights.empty()) return;  // step() throws for it
    if (plan) {
      const auto next = reader.peek();
      if (!next || !next->has_data) return;  // step() throws
      step = own_share(env, *next);
      if (!follows(step)) return;  // step() throws
    }
    if (!batch_open) begin_batch(step.total);
    trained.watch();
    micro = step;
    micro_open = true;
    counts_items = counts_items && (own_count || plan);
    engine.vote().count += own_count ? *own_count : micro.samples;
    feed.begin(micro.index, own_count ? 1.0 : static_cast<double>(step.samples));
  }

  // Whether `step` is this rank's next micro-batch, of the open batch or the first of another one.
  // Not after this DataParallel has left some out, while others in the loop have not.
  bool follows(const MicroStep& step) const {
    if (!reader.has_others()) return true;
    if (env.input->assignment() != own_shares()) return false;
    const auto leaves = leaves_of(trained.plan().assignment, step.total, env.world->rank());
    const std::size_t next = batch_open ? losses.size() : 0;
    return next < leaves.size() && leaves[next] == step.index;
  }

  void begin_batch(std::uint32_t micro_batches) {
    engine.begin(batches, micro_batches, {});
    batch_open = true;
    counts_items = true;
    engine.vote().trains = trained.has_rows();
    if (micro_batches != batch_total) {
      batch_total = micro_batches;
      first_with_share =
          parallel::first_of_some(trained.plan().assignment, micro_batches, env.world->size());
    }
    if (micro_batches > largest_total) {
      largest_total = micro_batches;
      const auto leaves = leaves_of(trained.plan().assignment, micro_batches, env.world->rank());
      first_of_full = leaves.empty() ? 0 : leaves.front();
    }
  }

  void take(std::size_t index, at::Tensor gradient) {
    // Refuses a loop that never calls step(); that one refuses a second pass before it, on all
    // ranks. Recomputed parts do not count: several of them may have the parameter.
    if (!stepped && !memory::in_recomputed_backward()) {
      if (passes == 0) first_gradient = index;
      if (index == first_gradient && ++passes > 2) parallel::refuse_missing_steps(env);
    }
    engine.vote().trains = true;
    engine.vote().means |= !own_count;
    engine.vote().sums |= own_count && *own_count != 0 && *own_count != micro.samples;
    feed.take(index, std::move(gradient));
  }

  bool step() {
    stepped = true;
    trained.refuse_direct_call();
    if (!micro_open) open_micro();
    if (!micro_open) parallel::refuse_step(reader, env, own_shares());
    feed.end(micro.samples);
    statistics.capture();
    reader.end_micro();
    micro_open = false;
    const double items = own_count ? 1 : static_cast<double>(micro.samples);
    losses.push_back(own_loss.defined()
                         ? own_loss.to(at::kDouble) * items
                         : at::full({}, std::numeric_limits<double>::quiet_NaN(), at::kDouble));
    own_loss.reset();
    own_count.reset();
    reader.consume();
    if (!micro.last_of_batch) {
      seed_after_micro();
      return false;
    }
    // A program may go on after a refused batch: the next one begins as after any other.
    bool taken = false;
    try {
      taken = finish_batch();
    } catch (const StepRefused&) {
      leave_own_batch();
      throw;
    }
    return leave_own_batch() || taken;
  }

  // True if this rank then took part in a batch without a share, and that was applied.
  bool leave_own_batch() {
    const auto next = reader.peek();
    // Only the last batch of an epoch may be short.
    const auto all_have_share = [this](const MicroStep& step) {
      return !step.last_of_epoch ||
             parallel::first_of_some(trained.plan().assignment, step.total, env.world->size()) < 0;
    };
    // A rank without a share of `next` is already in that batch. One without a share of this batch
    // has returned from the step() before it, unless it is the first after a resume.
    all_return =
        !reader.has_plan() || ((!std::exchange(first_here, false) || all_have_share(micro)) &&
                               (!next || all_have_share(*next)));
    took_part = false;
    reader.end_batch();
    seed_after_micro();
    return took_part;
  }

  // Takes part in batches without a share for this rank: the other ranks wait for it. True if the
  // last one was applied.
  bool take_part_without_share() {
    bool applied = false;
    for (;;) {
      const auto next = reader.peek();
      if (!next || next->has_data) return applied;
      reader.consume();
      if (env.own_world) continue;  // the others do not wait for it
      begin_batch(next->total);
      applied = finish_batch();
      all_return = applied;  // if all ranks skipped the batch, the others save nothing
    }
  }

  void backward(const at::Tensor& loss, std::optional<std::int64_t> count) {
    own_loss = loss.detach();
    own_count = count;
    const InputReader::Backward own(reader);
    try {
      loss.backward();
    } catch (...) {
      // The program may go on. If some gradients of the micro-batch have come, all ranks refuse the step.
      own_loss.reset();
      own_count.reset();
      if (micro_open) engine.vote().refuse(describe(std::current_exception()));
      throw;
    }
  }

  // The loader starts a pass, so the plan now knows the first micro-batch. After a resume the first
  // batch may have no share for this rank, and no earlier step() could take part in it.
  void input_begins() {
    if (micro_open || batch_open) return;
    if (trained.remote() != nullptr) trained.remote()->start();  // before the first forward pass
    take_part_without_share();
    seed_next();
  }

  // False: all ranks skipped the batch.
  bool finish_batch() {
    batch_open = false;
    for (const double loss : tensor::numbers_of(std::exchange(losses, {})))
      engine.losses().add(loss);
    parallel::LocalVote& vote = engine.vote();
    if (const std::string what = snapshot.difference(); !what.empty())
      vote.refuse(static_cast<int>(ExitCode::UserCode), what,
                  "Make a new DataParallel of the changed module.");
    ++batches;  // a refused batch counts, too: the next one has another number
    const StepResult done = engine.finish();
    BatchResult result{
        .gradient_norm = done.gradient_norm,
        .learning_rate = std::exchange(rate, std::nullopt).value_or(*done.learning_rate),
        .communication = *done.communication,
        .skipped = done.skipped,
        .skipped_steps = done.skipped_steps,
        .last_rank = done.last_rank,
        .behind = done.behind};
    if (counts_items) result.count = done.count;
    if (done.count > 0 && !std::isnan(done.loss)) result.loss = done.loss;
    if (done.skipped.empty()) gradient_norm = done.gradient_norm.value_or(0);
    results.push_back(std::move(result));
    if (results.size() > kMostResults) results.pop_front();
    return done.skipped.empty();
  }

  // The module without the traces of forward passes that belong to no micro-batch.
  parallel::TrainedModule& at_rest() {
    statistics.hold();
    return trained;
  }

  // StepTarget
  std::string name_of(std::size_t parameter) const override {
    const auto& all = trained.tensors().trainable;
    return parameter < all.size() ? all[parameter].first : "a row of an embedding";  // ServerSync
  }
  std::vector<double> learning_rates() const override {
    return parallel::learning_rates(trained.optimizer());
  }
  void check_first_gradients() override {}
  // A rank without a share is still in its last step(): its loop has not set the batch's rates yet.
  void gather_statistics(std::uint32_t total) override {
    if (first_with_share >= 0) {
      rates = learning_rates();
      env.world->broadcast(Buffer::of(std::span(rates)), first_with_share, {.label = "rates"})
          .wait();
    }
    statistics.gather(*env.world, trained.plan().assignment, total);
  }
  void fold_statistics() override { statistics.fold(); }
  void update(double scale) override {
    if (first_with_share < 0) return trained.update(scale);
    const std::vector<double> own = learning_rates();
    parallel::set_learning_rates(trained.optimizer(), rates);
    rate = rates.front();
    trained.update(scale);
    parallel::set_learning_rates(trained.optimizer(), own);
  }
  void mixed() override {}
  void drop() override { statistics.drop(); }

  // The input may call begin_pass after this object has ended and another has begun.
  const std::shared_ptr<Impl*> self = std::make_shared<Impl*>(this);
  DataParallelOptions options;
  InputReader reader;
  // Read before anything collective: ranks that are threads of one process share the generator.
  std::uint64_t seed = at::detail::getDefaultCPUGenerator().current_seed();
  const std::shared_ptr<comm::Communicator> group;
  parallel::StrategyContext env;
  parallel::TrainedModule trained;
  parallel::BatchStatistics statistics;
  std::int64_t batches = 0;  // finished, including refused ones
  bool batch_open = false, micro_open = false;
  bool took_part = false;          // a batch was applied in the last call of `take_part`
  bool first_here = true;          // no step() has returned since the start or a resume
  bool all_return = true;          // StepVoter
  bool stepped = false;            // step() was called, here or before a resume
  int passes = 0;                  // backward passes before the first step()
  std::size_t first_gradient = 0;  // of each of them
  std::uint32_t largest_total = 0, first_of_full = 0;
  std::uint32_t batch_total = 0;  // micro-batches
  int first_with_share = -1;
  std::vector<double> rates;   // of that rank
  std::optional<double> rate;  // the first of them, if they were used
  MicroStep micro;
  // The arguments of DataParallel::backward() for the open micro-batch.
  std::optional<std::int64_t> own_count;
  at::Tensor own_loss;
  std::vector<at::Tensor> losses;  // of the batch's micro-batches
  bool counts_items = true;        // the batch's count is of samples or tokens, not micro-batches
  std::deque<BatchResult> results;
  double gradient_norm = 0;

  parallel::StepGuards guards;
  parallel::StepEngine engine;
  parallel::GradientFeed feed;
  parallel::ParameterSnapshot snapshot;
  parallel::GradientHooks hooks;
};

DataParallel::DataParallel(const parallel::StrategyContext& env, torch::nn::Module& module,
                           torch::optim::Optimizer& optimizer, DataParallelOptions options)
    : impl_(std::make_unique<Impl>(env, module, optimizer, options)) {}

DataParallel::~DataParallel() = default;

void DataParallel::backward(const at::Tensor& mean) { impl_->backward(mean, std::nullopt); }

void DataParallel::backward(const at::Tensor& sum, std::int64_t count) {
  if (count < 0)
    throw ConfigError(
        "backward(sum, " + std::to_string(count) + ") was called with a negative count",
        {.rank = impl_->env.rank(),
         .host = impl_->env.host,
         .operation = "backward",
         .advice = "Give the number of items that the loss sums: 0 or more."});
  impl_->backward(sum, count);
}

std::vector<BatchResult> DataParallel::take_results() {
  const std::deque<BatchResult> results = std::exchange(impl_->results, {});
  return {results.begin(), results.end()};
}

bool DataParallel::step() {
  return impl_->engine.guarded([this] { return impl_->step(); });
}

std::int64_t DataParallel::steps() const noexcept { return impl_->trained.steps(); }
std::int64_t DataParallel::skipped_steps() const noexcept { return impl_->guards.skipped_steps(); }
double DataParallel::gradient_norm() const noexcept { return impl_->gradient_norm; }
int DataParallel::stop_signal() const noexcept { return impl_->engine.stop_signal(); }
bool DataParallel::all_ranks_return() const { return impl_->all_return; }
std::optional<std::int64_t> DataParallel::steps_ended() const {
  if (auto* remote = impl_->trained.remote(); remote && remote->pending()) return std::nullopt;
  return impl_->engine.steps_ended();
}

void DataParallel::settle() { impl_->trained.settle(); }
std::string DataParallel::weights_hash() { return impl_->at_rest().weights_hash(); }

std::vector<NamedShard> DataParallel::state() { return impl_->at_rest().state(); }
std::vector<NamedShard> DataParallel::own_state() { return impl_->at_rest().own_state(); }

bool DataParallel::can_go_on(const std::string& metadata) {
  const auto json = nlohmann::json::parse(metadata, nullptr, /*allow_exceptions=*/false);
  const std::int64_t updates = saved_count(json, "optimizer_updates");
  return impl_->trained.remote() == nullptr || impl_->trained.remote()->can_go_on(updates);
}

std::string DataParallel::metadata() const {
  nlohmann::json all{{"batches", impl_->batches},
                     {"steps", impl_->trained.steps()},
                     {"seed", impl_->seed},
                     {"optimizer", parallel::name_of(impl_->trained.optimizer())},
                     {"optimizer_updates", impl_->trained.optimizer_updates()}};
  impl_->guards.save(all);
  impl_->trained.compression().save(all);
  return all.dump();
}

void DataParallel::restored(const std::string& metadata) {
  const auto json = nlohmann::json::parse(metadata, nullptr, /*allow_exceptions=*/false);
  const std::int64_t batches = saved_count(json, "batches"), steps = saved_count(json, "steps");
  const std::int64_t updates = saved_count(json, "optimizer_updates");
  if (!json.contains("seed") || !json["seed"].is_number_integer())
    throw CheckpointError("the training state's metadata lacks \"seed\"",
                          {.rank = impl_->env.rank(),
                           .operation = "checkpoint.resume",
                           .advice = "Use a checkpoint of the same program."});
  require_same_optimizer(metadata, this->metadata());
  impl_->guards.restore(json);
  impl_->trained.compression().restored(json);
  impl_->batches = batches;
  impl_->seed = json["seed"].get<std::uint64_t>();
  impl_->trained.restored(steps, updates);
  impl_->statistics.reload();
  impl_->first_here = true;
  impl_->stepped = batches > 0;
  impl_->reader.forget();
  impl_->seed_next();
}

}  // namespace trireme::inline v0
