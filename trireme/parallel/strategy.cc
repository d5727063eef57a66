#include "trireme/parallel/strategy.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/weights_hash.h"
#include "trireme/parallel/agreement.h"
#include "trireme/parallel/data/autograd_hooks.h"
#include "trireme/parallel/data/local_sync.h"
#include "trireme/parallel/lanes.h"
#include "trireme/parallel/offload.h"
#include "trireme/parallel/overflow.h"
#include "trireme/parallel/parameter_store.h"
#include "trireme/parallel/replicate.h"
#include "trireme/parallel/scalar_tree.h"
#include "trireme/parallel/seat.h"
#include "trireme/parallel/shared_sums.h"
#include "trireme/parallel/sync_plan.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/cross_entropy.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/random.h"

namespace trireme {
inline namespace v0 {
namespace {

using parallel::Ballot;
using parallel::ScalarTree;

void check_local(const StrategyOptions& options, const parallel::Seat& seat) {
  const auto refuse = [&](const std::string& what, const std::string& advice) {
    throw ConfigError(what + " with parallel.sync = \"" + options.sync + "\"",
                      {.rank = seat.world->rank(), .operation = "strategy", .advice = advice});
  };
  if (options.compression != "none")
    refuse("comm.compression = \"" + options.compression + "\"",
           "Gradients stay on their ranks there: use comm.compression = \"none\".");
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
  tensor::compute_type(options.precision);  // throws for an unknown one
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
    return tensor::cross_entropy_sum(output.at(0), micro.field("targets"));
  };
}

struct Strategy::Impl {
  Impl(const parallel::Seat& own_seat, const models::Blocks& own_model, StrategyOptions own_options,
       std::unique_ptr<optim::Optimizer> own_optimizer)
      : seat(own_seat),
        plan(check_options(own_options, seat)),
        options(prepared(std::move(own_options))),
        store(own_model.ties(), store_options()),
        stage(own_model, options.seed,
              [this](const parallel::Stage::Member& member) { store.add_block(member); }),
        model(own_model),
        sync((store.complete(), offload_masters(), make_sync())),
        optimizer(std::move(own_optimizer)),
        hooks(store.leaves(), [this](std::size_t leaf, at::Tensor gradient) {
          sync->gradient(store.use_of_leaf()[leaf], microbatch, std::move(gradient));
        }) {
    seat.assign(plan.assignment);
    learning_rate = optimizer->base_learning_rate();
    optimizer->attach(sync->owned(), store.infos(),
                      groups.exchange ? parallel::make_shared_sums(*groups.exchange) : nullptr);
    if (mapped)
      for (const NamedShard& shard : optimizer->state()) mapped->take(shard.local);
    if (local != nullptr) local->attach(replica(), [this] { store.refresh(); });
    stage.train(true);
  }

  // Before anything has asked where they lie.
  void offload_masters() {
    if (options.offload.empty()) return;
    mapped.emplace(options.offload);
    for (const at::Tensor& memory : store.cold_memory()) mapped->take(memory);
  }

  parallel::StoreOptions store_options() {
    return {.precision = options.precision,
            .owners = plan.owners,
            .owner = plan.owner_of(seat.world->rank()),
            .shards_weights = plan.shards_weights,
            .replicate = [this](const parallel::NamedTensors& tensors) {
              parallel::replicate(*seat.world, tensors, seat.host);
            }};
  }

  std::unique_ptr<parallel::ParameterSync> make_sync() {
    if (plan.sharded()) {
      groups = parallel::make_shard_groups(*seat.world, plan);
      return std::make_unique<parallel::ShardedSync>(
          groups, store,
          parallel::ShardedSyncOptions{.assignment = plan.assignment,
                                       .rank = seat.world->rank(),
                                       .bucket_bytes = options.bucket_bytes,
                                       .before_launch = [this] { return enter_gate(); }});
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
        std::move(plain), parallel::make_mixer(plan.sync, *seat.world, options.local),
        options.local, [this] { return optimizer->step_count(); });
    local = own.get();
    return own;
  }

  parallel::Replica replica() {
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

  // A step of this rank's own: its gradient is complete before the ranks have agreed on anything.
  bool steps_alone() const { return local != nullptr && local->local(); }

  // All ranks show what they train together while the result lives.
  std::shared_ptr<void> common_weights() { return local != nullptr ? local->show() : nullptr; }

  observe::TracedScope traced(const char* what) const {
    return {seat.trace.get(), *seat.world->waiter(), what};
  }

  Work enter_gate() {
    return parallel::enter_gate(*seat.world, {.batch = step, .total = total}, seat.host);
  }

  // What the ranks of a group do in a step: for each round of micro-batches all blocks forward, and
  // back. Every rank of the group has the same, also where its last round is empty.
  std::vector<parallel::Use> order_of(std::size_t rounds, bool backward) const {
    std::vector<parallel::Use> order;
    const auto blocks = static_cast<std::uint16_t>(stage.members().size());
    for (std::uint32_t round = 0; round < rounds; ++round) {
      for (std::uint16_t block = 0; block < blocks; ++block)
        order.push_back({block, round, parallel::Phase::Forward});
      for (std::uint16_t block = blocks; backward && block-- > 0;)
        order.push_back({block, round, parallel::Phase::Backward});
    }
    return order;
  }

  // Of the rank of this group that has most.
  std::size_t rounds_of(std::uint32_t micro_batches) const {
    const int first = seat.world->rank() / plan.assignment.members * plan.assignment.members;
    return leaves_of(plan.assignment, micro_batches, first).size();
  }

  // A block's weights are here while it runs forward, and again from where backward comes to it
  // until backward comes to the block before.
  parallel::Stage::Enter pins(bool backward) {
    return [this, backward](std::size_t index) {
      const auto block = static_cast<std::uint16_t>(index);
      auto pin = std::make_shared<parallel::Pin>(
          sync->acquire({block, microbatch, parallel::Phase::Forward}));
      const std::uint64_t first_node = parallel::next_node();
      return [this, block, backward, pin, first_node](const models::Value& value) {
        *pin = {};
        if (!backward) return;
        parallel::before_backward(value, first_node, [this, block] {
          backward_pin = {};
          backward_pin = sync->acquire({block, microbatch, parallel::Phase::Backward});
        });
      };
    };
  }

  void refuse(Ballot& ballot, int exit_code, const std::string& reason) {
    if (!ballot.ok) return;
    ballot.ok = false;
    ballot.exit_code = exit_code;
    ballot.reason = reason;
  }

  // A scalar under autograd.
  static at::Tensor summed_loss(parallel::Stage& blocks, const MicroBatch& micro, std::int64_t step,
                                const Loss& loss, const parallel::Stage::Enter& enter = {}) {
    at::Tensor sum = loss(blocks.forward(micro, step, enter), micro);
    if (sum.numel() != 1)
      throw ConfigError("the loss has " + std::to_string(sum.numel()) + " elements",
                        {.operation = "step", .advice = "Return the summed loss, a scalar."});
    return sum;
  }

  void refuse_not_finite(double value, const MicroBatch& micro, Ballot& ballot) {
    if (std::isfinite(value)) return;
    refuse(
        ballot, 21,
        "the loss of micro-batch " + std::to_string(micro.index) + " is " + std::to_string(value));
  }

  // Forward and backward of one micro-batch; the summed loss.
  double compute(const MicroBatch& micro, const Loss& loss, Ballot& ballot) {
    const at::Tensor sum = [&] {
      const auto span = traced("forward");
      return summed_loss(stage, micro, step, loss,
                         plan.sharded() ? pins(true) : parallel::Stage::Enter());
    }();
    const double value = sum.item<double>();
    refuse_not_finite(value, micro, ballot);
    const auto span = traced("backward");
    sum.backward();
    return value;
  }

  // Every rank goes through all its micro-batches, whatever happens in one: the others count on its
  // part of each reduction, and learn in the vote what was wrong.
  void compute_all(const Batch& batch, const Loss& loss, ScalarTree& losses, Ballot& ballot) {
    const auto leaves = leaves_of(plan.assignment, total, seat.world->rank());
    if (batch.micro.size() != leaves.size())
      refuse(ballot, 23,
             "it was given " + std::to_string(batch.micro.size()) +
                 " micro-batches, its share is " + std::to_string(leaves.size()));
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (ballot.ok && start_lanes(batch, leaves, i)) {
        const auto rest = std::span(batch.micro).subspan(i);
        return compute_in_lanes(rest, leaves[i], loss, losses, ballot);
      }
      microbatch = leaves[i];
      sync->begin_micro(microbatch, 1);
      double value = 0;
      try {
        if (ballot.ok && batch.micro[i].index != microbatch)
          refuse(ballot, 23,
                 "it was given micro-batch " + std::to_string(batch.micro[i].index) +
                     " in the place of " + std::to_string(microbatch) + wrong_share());
        if (ballot.ok) {
          value = compute(batch.micro[i], loss, ballot);
          ballot.count += batch.micro[i].count;
        }
      } catch (...) {
        const ErrorReport report = describe(std::current_exception());
        refuse(ballot, report.exit_code, report.sentence);
      }
      backward_pin = {};
      sync->end_micro();
      losses.add(value);
      has_run = true;
    }
  }

  std::string wrong_share() const {
    if (!plan.sharded()) return {};
    return "; under " + plan.sync + " micro-batches are dealt out in turn (Job::assignment)";
  }

  // Whether the rest of this step's micro-batches goes to lanes. The first micro-batch of all runs
  // without them: it shows whether a block draws from the one generator that all threads share.
  bool start_lanes(const Batch& batch, std::span<const std::uint32_t> leaves, std::size_t begin) {
    if (options.lanes == 1 || leaves.size() - begin < 2 || !lanes_note.empty()) return false;
    for (std::size_t i = begin; i < leaves.size(); ++i)
      if (batch.micro[i].index != leaves[i]) return false;  // refused where it is computed
    if (lanes) return true;
    if (plan.assignment.members > 1)
      lanes_note = "under " + plan.sync + " the ranks compute one micro-batch each at a time";
    else if (!store.buffers().empty())
      lanes_note = "\"" + store.buffers().front().first +
                   "\" is a buffer, which micro-batches change in their order";
    else if (seat.world->transport_name() == "sim")
      lanes_note = "simulated ranks are threads already";
    else if (!stage.drawing_block().empty())
      lanes_note = "block \"" + stage.drawing_block() +
                   "\" draws from LibTorch's default generator, one for the whole process";
    if (!lanes_note.empty() || !has_run) return false;
    lanes = std::make_unique<parallel::Lanes>(model, options.seed, store.leaves(), options.lanes,
                                              seat.world->waiter());
    return true;
  }

  // The micro-batches from number `first` on.
  void compute_in_lanes(std::span<const MicroBatch> micros, std::uint32_t first, const Loss& loss,
                        ScalarTree& losses, Ballot& ballot) {
    const std::uint64_t position = tensor::default_generator_position();
    const auto compute = [&](parallel::Stage& blocks, std::size_t task) {
      const at::Tensor sum = summed_loss(blocks, micros[task], step, loss);
      sum.backward();
      return sum.item<double>();
    };
    const parallel::Lanes::Sink sink = {
        .begin =
            [&](std::size_t task) {
              microbatch = first + static_cast<std::uint32_t>(task);
              sync->begin_micro(microbatch, 1);
            },
        .gradient =
            [&](std::size_t leaf, at::Tensor gradient) {
              sync->gradient(store.use_of_leaf()[leaf], microbatch, std::move(gradient));
            },
        .end =
            [&](std::size_t task, double value, const std::exception_ptr& error) {
              if (error) {
                const ErrorReport report = describe(error);
                refuse(ballot, report.exit_code, report.sentence);
              } else {
                refuse_not_finite(value, micros[task], ballot);
                ballot.count += micros[task].count;
              }
              sync->end_micro();
              losses.add(value);
            }};
    const auto span = traced("lanes");
    lanes->run(micros.size(), compute, sink);
    if (position != tensor::default_generator_position())
      refuse(ballot, 20,
             "LibTorch's default generator was drawn from while lanes computed, so the numbers "
             "depend on their timing; set train.lanes = 1");
  }

  void apply(StepResult& result) {
    sync->settle();
    const double scale = result.count > 0 ? 1.0 / static_cast<double>(result.count) : 0.0;
    const bool clips = options.clip > 0 && result.count > 0;
    if (clips)
      result.gradient_norm = std::sqrt(sync->squared_norm()) / static_cast<double>(result.count);
    // A finite norm says that everything under it is.
    if (!clips || !std::isfinite(result.gradient_norm))
      parallel::refuse_overflow(
          *sync, [this](std::size_t parameter) { return store.parameters()[parameter].name; },
          *seat.world, seat.host, static_cast<long>(step));
    update(scale * clipping(result.gradient_norm));
  }

  // 1 where the norm is within bounds (or none was taken).
  double clipping(double norm) const {
    if (options.clip <= 0 || norm <= options.clip) return 1;
    return options.clip / (norm + 1e-6);  // as torch clip_grad_norm_
  }

  void update(double scale) {
    const auto span = traced("optimizer");
    optimizer->apply(learning_rate, scale);
    sync->publish().wait();
  }

  // Before the vote, in a step of this rank's own: what the others have to know of its gradient.
  void settle_own(Ballot& ballot) {
    if (!steps_alone()) return;
    sync->settle();
    if (options.clip > 0) ballot.squares = sync->squared_norm();
    if (options.clip > 0 && std::isfinite(ballot.squares)) return;
    if (const std::int64_t parameter = sync->first_overflow(); parameter >= 0)
      refuse(ballot, 21,
             "its gradient of " + store.parameters()[static_cast<std::size_t>(parameter)].name +
                 " is finite in every micro-batch, but their sum is not");
  }

  // local_sync.h says why N/count.
  void apply_own(StepResult& result, double own_squares, double all_squares) {
    const double ranks = seat.world->size();
    const double scale = result.count > 0 ? ranks / static_cast<double>(result.count) : 0.0;
    result.gradient_norm = std::sqrt(all_squares / ranks) * scale;
    update(scale * clipping(std::sqrt(own_squares) * scale));
  }

  StepResult run(const Batch& batch, const Loss& loss) {
    const auto span = traced("step");
    const TimePoint start = seat.world->waiter()->now();
    const Duration waited = seat.world->time_waited();
    step = batch.step;
    total = batch.total;
    seat.set_step(static_cast<long>(step));
    sync->begin(total, order_of(plan.sharded() ? rounds_of(total) : 0, true));
    ScalarTree losses(total, plan.assignment, seat.world->rank());
    Ballot ballot;
    compute_all(batch, loss, losses, ballot);
    ballot.stop_signal = seat.stop_signal();
    const Work reduced = sync->finish();
    const Work loss_sum = losses.reduce(*seat.world, seat.reduce, "loss");
    if (const auto refusal = sync->refusal()) refuse(ballot, refusal->exit_code, refusal->reason);
    settle_own(ballot);
    const parallel::Vote vote(*seat.world, ballot);
    const std::array<Work, 3> works = {reduced, loss_sum, vote.work()};
    {
      const auto wait = traced("wait for gradients");
      Work::all(works).wait();
    }
    const parallel::Verdict verdict = vote.result();
    throw_if_refused(verdict, *seat.world, seat.host, static_cast<long>(step));
    StepResult result{.count = verdict.count, .stop_signal = verdict.stop_signal};
    result.loss = losses.sum() / static_cast<double>(std::max<std::int64_t>(result.count, 1));
    if (steps_alone()) {
      apply_own(result, ballot.squares, verdict.squares);
    } else {
      apply(result);
    }
    result.communication = seat.world->time_waited() - waited;
    result.total = seat.world->waiter()->now() - start;
    return result;
  }

  double evaluate(const std::vector<Batch>& batches, const Loss& loss) {
    const c10::AutoGradMode no_grad(false);
    const auto common = common_weights();
    stage.train(false);
    std::deque<ScalarTree> sums;  // the reductions point into it
    std::vector<Work> works;
    std::int64_t count = 0;
    const kernel::Assignment shares = kernel::contiguous(seat.world->size());
    sync->begin(0, order_of(evaluation_rounds(batches), false));
    for (const Batch& batch : batches) {
      ScalarTree& sum = sums.emplace_back(batch.total, shares, seat.world->rank());
      for (const MicroBatch& micro : batch.micro)
        sum.add(loss(stage.forward(micro, 0, plan.shards_weights ? pins(false) : nullptr), micro)
                    .item<double>());
      works.push_back(sum.reduce(*seat.world, seat.reduce, "validation loss"));
      count += batch.global_count;
    }
    works.push_back(sync->finish());
    stage.train(true);
    Work::all(works).wait();
    double total_loss = 0;
    for (ScalarTree& sum : sums) total_loss += sum.sum();
    return count > 0 ? total_loss / static_cast<double>(count) : 0.0;
  }

  // Forward passes of the rank of this group that has most of them.
  std::size_t evaluation_rounds(const std::vector<Batch>& batches) const {
    if (!plan.shards_weights) return 0;
    const int first = seat.world->rank() / plan.owners * plan.owners;
    std::size_t most = 0;
    for (int rank = first; rank < first + plan.owners; ++rank) {
      std::size_t rounds = 0;
      for (const Batch& batch : batches)
        rounds += kernel::contiguous_share(batch.total, seat.world->size(), rank).count;
      most = std::max(most, rounds);
    }
    return most;
  }

  models::Value infer(const MicroBatch& micro) {
    const c10::AutoGradMode no_grad(false);
    stage.train(false);
    sync->begin(0, order_of(plan.shards_weights ? 1 : 0, false));
    models::Value value = stage.forward(micro, 0, plan.shards_weights ? pins(false) : nullptr);
    sync->finish().wait();
    stage.train(true);
    return value;
  }

  // One parameter at a time is whole where the ranks hold parts.
  std::string weights_hash() {
    const auto common = common_weights();
    std::vector<NamedShard> whole = content();
    std::map<std::string, std::uint32_t> parts;  // parameters by name
    if (!store.masters_are_whole()) {
      for (std::uint32_t i = 0; i < store.parameters().size(); ++i)
        parts.emplace(store.parameters()[i].name, i);
    }
    for (const auto& [name, index] : parts) whole.push_back({.name = name});
    const std::vector<NamedShard> masters = store.masters();
    std::sort(whole.begin(), whole.end(),
              [](const NamedShard& a, const NamedShard& b) { return a.name < b.name; });
    WeightsHash hash;
    for (const NamedShard& shard : whole) {
      const auto part = parts.find(shard.name);
      const at::Tensor tensor =
          part == parts.end() ? shard.local : gathered_master(part->second, masters);
      const Buffer buffer = tensor::to_buffer(tensor);
      hash.add({shard.name, buffer.dtype, tensor.sizes().vec(), buffer.as_bytes()});
    }
    return hash.finish();
  }

  // Whole tensors that this rank has: buffers, and masters where they are whole.
  std::vector<NamedShard> content() const {
    std::vector<NamedShard> shards;
    if (store.masters_are_whole()) shards = store.masters();
    for (const auto& [name, tensor] : store.buffers())
      shards.push_back({.name = name,
                        .dtype = tensor::dtype_of(tensor),
                        .shape = tensor.sizes().vec(),
                        .begin = 0,
                        .end = tensor.numel(),
                        .local = tensor});
    return shards;
  }

  // Collective. `masters`: this rank's parts.
  at::Tensor gathered_master(std::uint32_t parameter,
                             const std::vector<NamedShard>& masters) const {
    const parallel::StoredParameter& stored = store.parameters()[parameter];
    at::Tensor mine = at::empty({0}, tensor::scalar_type_of(stored.master));
    for (const NamedShard& shard : masters)
      if (shard.name == stored.name) mine = shard.local.flatten();
    std::vector<std::size_t> counts;
    for (const auto& pieces : store.ownership().pieces()) {
      counts.push_back(0);
      for (const parallel::Piece& piece : pieces)
        if (piece.parameter == parameter) counts.back() = static_cast<std::size_t>(piece.size());
    }
    const at::Tensor whole = at::empty(stored.shape, mine.options());
    groups.exchange
        ->all_gather_v(tensor::to_buffer(mine), tensor::to_buffer(whole), counts,
                       {.label = stored.name})
        .wait();
    return whole;
  }

  std::vector<NamedShard> state() {
    if (local != nullptr) local->meet();
    std::vector<NamedShard> shards = content();
    if (!store.masters_are_whole()) {
      for (NamedShard& shard : store.masters()) shards.push_back(std::move(shard));
    }
    for (NamedShard& shard : optimizer->state()) {
      shard.name = "optimizer/" + shard.name;
      shards.push_back(std::move(shard));
    }
    if (local != nullptr)
      for (NamedShard& shard : local->state()) shards.push_back(std::move(shard));
    return shards;
  }

  parallel::Seat seat;
  parallel::SyncPlan plan;
  StrategyOptions options;
  std::optional<parallel::MappedState> mapped;  // outlives what lies in it
  parallel::ParameterStore store;
  parallel::Stage stage;
  const models::Blocks model;  // what lanes are built from
  std::unique_ptr<parallel::Lanes> lanes;
  std::string lanes_note;        // why there are none, though they were asked for
  bool has_run = false;          // a micro-batch has been computed
  std::uint32_t microbatch = 0;  // the one that is computed now
  std::int64_t step = 0;
  std::uint32_t total = 0;
  bool failed = false;  // a step has thrown: the others know
  double learning_rate = 0;
  parallel::ShardGroups groups;          // empty where nothing is sharded
  parallel::LocalSync* local = nullptr;  // `sync`, where ranks train copies of their own
  std::unique_ptr<parallel::ParameterSync> sync;
  parallel::Pin backward_pin;
  std::unique_ptr<optim::Optimizer> optimizer;
  parallel::GradientHooks hooks;
  int exceptions = std::uncaught_exceptions();
};

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
    impl_->sync->drop();
    throw;  // every rank has it and may go on
  } catch (...) {
    impl_->failed = true;
    throw;
  }
}

double Strategy::evaluate(const std::vector<Batch>& batches, const Loss& loss) {
  return impl_->evaluate(batches, loss);
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

std::string Strategy::metadata() const {
  return nlohmann::json{{"optimizer", impl_->optimizer->name()},
                        {"optimizer_steps", impl_->optimizer->step_count()}}
      .dump();
}

void Strategy::restored(const std::string& metadata) {
  const auto json = nlohmann::json::parse(metadata, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("optimizer_steps") ||
      !json["optimizer_steps"].is_number_integer()) {
    throw CheckpointError("the training state's metadata is not what a Strategy writes",
                          {.rank = impl_->seat.world->rank(),
                           .operation = "checkpoint.resume",
                           .advice = "Use a checkpoint of the same program."});
  }
  // AdamW's and LAMB's tensors have the same names; checkpoints from before have no name here.
  const std::string own(impl_->optimizer->name());
  const std::string saved = json.contains("optimizer") && json["optimizer"].is_string()
                                ? json["optimizer"].get<std::string>()
                                : own;
  if (saved != own) {
    throw CheckpointError(
        "the checkpoint holds the state of the optimizer " + saved + ", and this run has " + own,
        {.rank = impl_->seat.world->rank(),
         .operation = "checkpoint.resume",
         .advice = "Go on with " + saved + ", or start anew from its weights."});
  }
  impl_->optimizer->set_step_count(json["optimizer_steps"].get<std::int64_t>());
  impl_->store.refresh();
  if (impl_->local != nullptr) return impl_->local->restored();
  impl_->sync->publish().wait();
}

}  // namespace v0
}  // namespace trireme
