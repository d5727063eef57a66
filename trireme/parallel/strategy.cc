#include "trireme/parallel/strategy.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/models/layer_factory.h"
#include "trireme/parallel/replicate.h"
#include "trireme/parallel/shared_sums.h"
#include "trireme/parallel/strategy_impl.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/determinism.h"

namespace trireme {
inline namespace v0 {
namespace {

void check_local(const StrategyOptions& options, const parallel::Seat& seat) {
  const auto refuse = [&](const std::string& what, const std::string& advice) {
    throw ConfigError(what + " with parallel.sync = \"" + options.sync + "\"",
                      {.rank = seat.world->rank(), .operation = "strategy", .advice = advice});
  };
  if (options.compression != "none")
    refuse("comm.compression = \"" + options.compression + "\"",
           "Gradients stay on their ranks there: use comm.compression = \"none\".");
  if (options.ema != 0 || options.outliers.limit != 0 || options.noise_scale)
    refuse("train.ema, train.skip_outliers or train.noise_scale",
           "Ranks train copies of their own there: leave these out, or use another sync.");
  if (options.local.steps < 1)
    refuse("parallel.local_steps = " + std::to_string(options.local.steps), "Use 1 or more.");
  if (options.local.post_local_after < 0)
    refuse("parallel.post_local_after = " + std::to_string(options.local.post_local_after),
           "Use 0 or more.");
  const auto check_number = [&](const char* key, double value, bool good, const char* advice) {
    if (!good) refuse(std::string(key) + " = " + std::to_string(value), advice);
  };
  const LocalOptions& local = options.local;
  check_number("parallel.outer_rate", local.outer_rate, local.outer_rate > 0, "Use more than 0.");
  check_number("parallel.outer_momentum", local.outer_momentum,
               local.outer_momentum >= 0 && local.outer_momentum < 1, "Use 0 to below 1.");
  check_number("parallel.elastic", local.elastic, local.elastic > 0 && local.elastic <= 1,
               "Use more than 0, at most 1.");
}

parallel::SyncPlan check_options(const StrategyOptions& options, const parallel::Seat& seat) {
  const int size = seat.world->size();
  const auto refuse = [&](const std::string& what, const std::string& advice) {
    throw ConfigError(what,
                      {.rank = seat.world->rank(), .operation = "strategy", .advice = advice});
  };
  if (options.pipeline != 1 || options.context != 1 || options.tensor != 1)
    refuse("only the data and shard axes are in this release", "Leave the other axes at 1.");
  const parallel::SyncPlan plan =
      parallel::plan_sync(options.sync, size, options.shard, seat.local_size);
  if (options.sync == "plain" && options.shard > 1)
    refuse("parallel.shard = " + std::to_string(options.shard) + " with parallel.sync = \"plain\"",
           "Use zero1, zero2, zero3 or hybrid, or leave it out.");
  const int data = options.sync == "hybrid" ? size / plan.owners : size;
  if (options.data != 0 && options.data != data &&
      options.data * std::max(options.shard, 1) != size)
    refuse("parallel.data = " + std::to_string(options.data) + ", the job has " +
               std::to_string(size) + " ranks",
           "Leave it out, or start that many ranks.");
  if (plan.sharded() && options.compression != "none")
    refuse("comm.compression = \"" + options.compression + "\" with parallel.sync = \"" +
               options.sync + "\": parts of gradients are not compressed",
           "Use plain, or comm.compression = \"none\".");
  if (plan.sharded() && !options.overlap)
    refuse("parallel.overlap = false with parallel.sync = \"" + options.sync +
               "\", whose memory depends on it",
           "Leave it out, or use plain.");
  if (plan.local) check_local(options, seat);
  if (options.lanes < 1) refuse("train.lanes = " + std::to_string(options.lanes), "Use 1 or more.");
  tensor::compute_type(options.precision);  // these two throw for an unknown one
  memory::parse_recompute(options.recompute);
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

Strategy::Impl::Impl(const parallel::Seat& own_seat, const models::Blocks& own_model,
                     StrategyOptions own_options, std::unique_ptr<optim::Optimizer> own_optimizer)
    : seat(own_seat),
      plan(check_options(own_options, seat)),
      options(prepared(std::move(own_options))),
      store(own_model.ties(), store_options()),
      stage(own_model, options.seed,
            [this](const parallel::Stage::Member& member) { store.add_block(member); }),
      model(own_model),
      statistics((store.complete(), stage)),
      sync((offload_masters(), make_sync())),
      optimizer(std::move(own_optimizer)),
      hooks(store.leaves(),
            [this](std::size_t leaf, at::Tensor gradient) { take(leaf, std::move(gradient)); }) {
  seat.assign(plan.assignment);
  learning_rate = optimizer->base_learning_rate();
  optimizer->attach(sync->owned(), store.infos(),
                    groups.exchange ? parallel::make_shared_sums(*groups.exchange) : nullptr);
  if (mapped)
    for (const NamedShard& shard : optimizer->state()) mapped->take(shard.local);
  make_helpers();
  if (local != nullptr) local->attach(replica(), [this] { store.refresh(); });
  stage.train(true);
  stage.recompute(memory::parse_recompute(options.recompute));
}

// Before anything has asked where they lie.
void Strategy::Impl::offload_masters() {
  if (options.offload.empty()) return;
  mapped.emplace(options.offload);
  for (const at::Tensor& memory : store.cold_memory()) mapped->take(memory);
}

parallel::StoreOptions Strategy::Impl::store_options() {
  return {.precision = options.precision,
          .owners = plan.owners,
          .owner = plan.owner_of(seat.world->rank()),
          .shards_weights = plan.shards_weights,
          .replicate = [this](const parallel::NamedTensors& tensors) {
            parallel::replicate(*seat.world, tensors, seat.host);
          }};
}

std::unique_ptr<parallel::ParameterSync> Strategy::Impl::make_sync() {
  if (plan.sharded()) {
    groups = parallel::make_shard_groups(*seat.world, plan);
    return std::make_unique<parallel::ShardedSync>(
        groups, store,
        parallel::ShardedSyncOptions{.assignment = plan.assignment,
                                     .rank = seat.world->rank(),
                                     .bucket_bytes = options.bucket_bytes,
                                     .before_launch = [this] { return enter_gate(); },
                                     .on_event = seat.on_shard_event});
  }
  auto plain = std::make_unique<parallel::PlainSync>(
      *seat.world, store.uses(), store.parameter_of(), store.slices(),
      parallel::PlainSyncOptions{.bucket_bytes = options.bucket_bytes,
                                 .overlap = options.overlap,
                                 .reduce = seat.reduce,
                                 .before_launch = [this] { return enter_gate(); },
                                 .compression = options.compression,
                                 .seed = options.seed});
  if (!plan.local) return plain;
  auto own = std::make_unique<parallel::LocalSync>(
      std::move(plain), parallel::make_mixer(plan.sync, *seat.world, options.local), options.local,
      [this] { return optimizer->step_count(); });
  local = own.get();
  return own;
}

parallel::Replica Strategy::Impl::replica() {
  parallel::Replica copy{.masters = store.masters()};
  for (const NamedShard& shard : copy.masters)
    copy.weights.push_back(tensor::to_buffer(shard.local));
  for (const NamedShard& shard : optimizer->state())
    copy.moments.push_back(tensor::to_buffer(shard.local));
  for (const auto& [name, buffer] : store.buffers())
    if (c10::isFloatingType(buffer.scalar_type()) && buffer.numel() > 0)
      copy.buffers.push_back(tensor::to_buffer(buffer));
  return copy;
}

Work Strategy::Impl::enter_gate() {
  return parallel::enter_gate(*seat.world, {.batch = step, .total = total}, seat.host);
}

Strategy::Strategy(const parallel::Seat& seat, const models::Blocks& model, StrategyOptions options,
                   std::unique_ptr<optim::Optimizer> optimizer)
    : impl_(std::make_unique<Impl>(seat, model, std::move(options), std::move(optimizer))) {}

Strategy::~Strategy() {
  if (!impl_->failed && std::uncaught_exceptions() == impl_->exceptions)
    parallel::leave(*impl_->seat.world);
}

StepResult Strategy::step(const Batch& batch, const Loss& loss) {
  try {
    return impl_->run(batch, loss);
  } catch (const StepRefused&) {
    impl_->drop();
    throw;  // every rank has it and may go on
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
  return impl_->mapped ? static_cast<std::int64_t>(impl_->mapped->bytes()) : 0;
}
bool Strategy::has_whole_weights() const { return !impl_->store.shards_weights(); }
std::int64_t Strategy::num_parameters() const { return impl_->store.num_elements(); }
int Strategy::lanes() const { return impl_->lanes ? impl_->lanes->count() : 1; }
std::string Strategy::lanes_note() const { return impl_->lanes_note; }
std::int64_t Strategy::gradient_bytes() const {
  return static_cast<std::int64_t>(impl_->sync->gradient_bytes());
}

std::string Strategy::weights_hash() { return impl_->weights_hash(); }

std::vector<NamedShard> Strategy::state() { return impl_->state(); }

void Strategy::use_average(bool on) { impl_->use_average(on); }

std::string Strategy::metadata() const { return impl_->metadata(); }
void Strategy::restored(const std::string& metadata) { impl_->restored(metadata); }

}  // namespace v0
}  // namespace trireme
