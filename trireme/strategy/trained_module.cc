#include "trireme/strategy/trained_module.h"

#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <array>
#include <exception>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/layers/replicate.h"
#include "trireme/ps/worker/server_sync.h"
#include "trireme/strategy/option_check.h"
#include "trireme/strategy/served.h"
#include "trireme/strategy/shares.h"
#include "trireme/sync/agreement.h"
#include "trireme/sync/torch_optimizer.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0::parallel {
namespace {

ModuleTensors checked_tensors(torch::nn::Module& module, const torch::optim::Optimizer& optimizer,
                              const DataParallelOptions& options) {
  ModuleTensors tensors = tensors_of(module);
  check_module(tensors, options, optimizer);
  return tensors;
}

SyncPlan plan_of(const DataParallelOptions& options, const StrategyContext& env) {
  const int ranks = env.world->size();
  SyncPlan plan = plan_sync(options.sync, ranks, 0, env.local_size);
  if (options.shares == "auto")
    throw ConfigError("DataParallel cannot use shares = \"auto\", since its loader reads ahead",
                      {.rank = env.rank(),
                       .operation = "DataParallel",
                       .advice = "Give weights such as 3:2:1, or use a Strategy with batches()."});
  set_shares(plan, options.shares, ranks, env.world->rank());
  return plan;
}

// The device of the module's parameters, ready for `env`'s ranks.
Device device_in(const ModuleTensors& tensors, const StrategyContext& env, int kernel_threads) {
  tensor::set_up_kernels(kernel_threads);
  const Device device = tensor::device_of(tensors.trainable.front().second.device());
  tensor::set_up_device(*env.world, device, env.reproducible);
  return device;
}

}  // namespace

TrainedModule::TrainedModule(const StrategyContext& env, torch::nn::Module& module,
                             torch::optim::Optimizer& optimizer, const DataParallelOptions& options,
                             const std::function<Work()>& barrier)
    : env_(env),
      optimizer_(optimizer),
      sync_name_(options.sync),
      embeddings_(models::embeddings_of(module)),
      tensors_(checked_tensors(module, optimizer, options)),
      device_(device_in(tensors_, env, options.kernel_threads)),
      plan_(plan_of(options, env)),
      sync_(make_sync(options, barrier)),
      compression_(options.compression, compressors_of(std::array{sync_.get()}), env.rank() == 0) {}

// The optimizer may be trained further, as if its state had never been read.
TrainedModule::~TrainedModule() {
  for (const std::size_t i : made_) forget_state(optimizer_, updated(i));
}

// First the ranks' models are compared, since ranks allocate together what their own model's
// parameters take. Then their settings, which say what else they do together.
std::unique_ptr<ParameterSync> TrainedModule::make_sync(const DataParallelOptions& options,
                                                        const std::function<Work()>& barrier) {
  replicate(*env_.world, tensors_.distinct, env_.host);
  std::string settings = settings_of(tensors_, options, optimizer_);
  // Servers have a state of their own. In an elastic job new ranks get that of the others later.
  // Unless a job is reproducible, ranks may compute other bits.
  if (env_.world->size() > 1 && !plan_.served && !env_.servers.elastic && env_.reproducible)
    settings += state_text(tensors_, optimizer_);
  require_equal_ranks(
      *env_.world, {.processor = processor_of(env_), .settings = std::move(settings)}, env_.host);
  const PlainSyncOptions sync{.bucket_bytes = options.bucket_bytes,
                              .reduce = env_.reduce,
                              .before_launch = barrier,
                              .compression = options.compression};
  if (plan_.served) return make_served(sync, server_options_of(options));
  if (!embeddings_.empty())
    throw ConfigError("the rows of embedding \"" + embeddings_.front()->table().name +
                          "\" are trained by parameter servers",
                      {.rank = env_.rank(),
                       .operation = "DataParallel",
                       .advice = "Use sync = \"server\" in a job with servers."});
  return plan_.sharded() ? make_sharded(sync) : make_plain(sync);
}

std::unique_ptr<ParameterSync> TrainedModule::make_plain(const PlainSyncOptions& options) {
  std::vector<std::uint32_t> numbers(tensors_.trainable.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  auto sync = std::make_unique<PlainSync>(
      *env_.world, std::vector<std::vector<Accumulated>>{accumulators(tensors_.trainable)},
      std::vector<std::vector<std::uint32_t>>{numbers}, whole_slices(tensors_.trainable), options);
  sync->set_shares(plan_.assignment.weights);
  return sync;
}

void TrainedModule::move_into_store() {
  store_.emplace(std::vector<models::Tie>{},
                 StoreOptions{.precision = "own",
                              .owners = plan_.owners,
                              .owner = plan_.owner_of(env_.world->rank()),
                              .device = device_});
  store_->add_block({.name = "", .block = as_one_block(tensors_.trainable)});
  store_->complete();
}

std::unique_ptr<ParameterSync> TrainedModule::make_served(const PlainSyncOptions& options,
                                                          const ServerOptions& server) {
  remote_ = make_remote_optimizer(env_, server, own_optimizer(optimizer_));
  rows_ = connect_rows(embeddings_, *remote_);
  move_into_store();
  auto sync = std::make_unique<ps::ServerSync>(
      SyncSetup{.plan = plan_, .data = *env_.world, .store = *store_, .options = options},
      *remote_);
  remote_->attach(sync->owned(), store_->infos());
  return sync;
}

std::unique_ptr<ParameterSync> TrainedModule::make_sharded(const PlainSyncOptions& options) {
  move_into_store();
  std::vector<OptimizerShards::Shard> owned;
  const auto parts = store_->slices();
  for (std::size_t i = 0; i < parts.size(); ++i)
    owned.push_back({parts[i].parameter, parts[i].begin, parts[i].end, store_->master(i)});
  shards_.emplace(optimizer_, without_names(tensors_.trainable), std::move(owned));
  groups_ = make_shard_groups(*env_.world, plan_);
  return make_parameter_sync({.plan = plan_,
                              .data = *env_.world,
                              .store = *store_,
                              .groups = groups_,
                              .options = options});
}

// The tensor that the optimizer updates for owned()[i]: the parameter, or this rank's shard of it.
at::Tensor TrainedModule::updated(std::size_t i) {
  return shards_ ? shards_->shards()[i].tensor : tensors_.trainable[i].second;
}

void TrainedModule::update(double scale) {
  compression_.say();
  if (remote_) {
    remote_->apply(learning_rates(optimizer_).front(), scale);
    steps_ = std::max(steps_ + 1, remote_->step_count());
    return;
  }
  const c10::AutoGradMode no_grad(false);
  const auto sums = sync_->owned();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    at::Tensor parameter = updated(i);
    const Buffer sum{const_cast<void*>(sums[i].gradient), static_cast<std::size_t>(sums[i].size()),
                     sums[i].master_dtype, device_};
    at::Tensor gradient = tensor::view_of(sum, parameter.sizes()).mul_(scale);
    parameter.mutable_grad() = gradient.to(parameter.scalar_type());
  }
  for (const std::size_t i : std::exchange(made_, {})) forget_state(optimizer_, updated(i));
  if (shards_) shards_->trust();
  try {
    optimizer_.step();
  } catch (...) {  // this rank's error alone: the others wait for its weights or its next step
    give_up(*env_.world,
            {env_.world, groups_.exchange.get(), groups_.gather.get(), groups_.replicas.get()},
            std::current_exception());
    throw;
  }
  ++steps_;
  for (std::size_t i = 0; i < sums.size(); ++i) updated(i).mutable_grad().reset();
}

// Without the servers' state.
std::vector<NamedShard> TrainedModule::own_state() {
  std::vector<NamedShard> state;
  std::set<const void*> frozen;
  for (const auto& [name, parameter] : tensors_.parameters)
    if (!parameter.requires_grad()) frozen.insert(parameter.unsafeGetTensorImpl());
  for (const auto& [name, tensor] : tensors_.all) {
    state.push_back(tensor::whole_shard(name, tensor));
    state.back().frozen = frozen.contains(tensor.unsafeGetTensorImpl());
  }
  if (remote_) return state;
  const auto slices = sync_->owned();
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const auto& [name, parameter] = tensors_.trainable[slices[i].parameter];
    if (lacks_state(optimizer_, updated(i))) made_.insert(i);
    const bool of_unknown_type = made_.contains(i) && is_derived(optimizer_);
    for (const auto& [kind, tensor] : state_tensors(optimizer_, updated(i))) {
      NamedShard shard = tensor::whole_shard("optimizer/" + name + "." + kind, tensor);
      shard.shape = parameter.sizes().vec();
      shard.begin = slices[i].begin;
      shard.end = slices[i].end;
      shard.optional = of_unknown_type;
      state.push_back(std::move(shard));
    }
  }
  for (NamedShard& shard : compression_.shards()) state.push_back(std::move(shard));
  return state;
}

std::vector<NamedShard> TrainedModule::state() {
  settle();
  std::vector<NamedShard> state = own_state();
  if (!remote_) return state;
  for (NamedShard& shard : remote_->state()) {
    shard.name.insert(0, "optimizer/");
    state.push_back(std::move(shard));
  }
  if (rows_)
    for (NamedShard& shard : rows_->state()) state.push_back(std::move(shard));
  return state;
}

std::string TrainedModule::weights_hash() {
  settle();
  NamedTensors all = tensors_.all;
  if (rows_)
    for (const NamedShard& shard : rows_->weights()) all.emplace_back(shard.name, shard.local);
  return hash_of(all);
}

std::int64_t TrainedModule::optimizer_updates() {
  if (remote_) return remote_->step_count();
  if (sync_->owned().empty()) return steps_;
  std::int64_t most = 0;  // the optimizer may have only some of the parameters
  for (std::size_t i = 0; i < sync_->owned().size(); ++i)
    most = std::max(most, static_cast<std::int64_t>(updates(optimizer_, updated(i))));
  return most;
}

void TrainedModule::restored(std::int64_t steps, std::int64_t optimizer_updates) {
  steps_ = steps;
  if (remote_) return remote_->set_step_count(optimizer_updates);
  // The checkpoint has no state of a derived optimizer whose state has a type of its own.
  const bool all_saved = steps > 0 && !is_derived(optimizer_);
  std::erase_if(made_,
                [&](std::size_t i) { return all_saved || has_momentum(optimizer_, updated(i)); });
  for (std::size_t i = 0; i < sync_->owned().size(); ++i)
    set_updates(optimizer_, updated(i), optimizer_updates);
}

Duration TrainedModule::time_waited() const {
  Duration sum = env_.world->time_waited();
  for (const auto& group : {groups_.exchange, groups_.gather, groups_.replicas})
    if (group) sum += group->time_waited();
  if (remote_) sum += remote_->client().time_waited();
  return sum;
}

}  // namespace trireme::inline v0::parallel
