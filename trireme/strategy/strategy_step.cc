#include <ATen/ops/full_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/layers/context/positions.h"
#include "trireme/layers/equal_gradients.h"
#include "trireme/layers/group_layers.h"
#include "trireme/layers/tensor/regions.h"
#include "trireme/strategy/strategy_impl.h"
#include "trireme/sync/overflow.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/loss_gradient.h"
#include "trireme/tensor/random.h"

namespace trireme::inline v0 {
namespace {

using parallel::LocalVote;
using parallel::ScalarTree;

constexpr const char* kShareAdvice =
    "Give every rank its share, as trireme::batches and Sampler do.";

// A scalar under autograd.
at::Tensor summed_loss(parallel::Stage& blocks, const MicroBatch& micro, std::int64_t step,
                       const Loss& loss, const parallel::Stage::Enter& enter = {}) {
  at::Tensor sum = loss(blocks.forward(micro, step, enter), micro);
  if (sum.numel() != 1)
    throw ConfigError("the loss has " + std::to_string(sum.numel()) + " elements",
                      {.operation = "step", .advice = "Return the summed loss, a scalar."});
  return sum;
}

void run_back(const at::Tensor& sum, double gradient) {
  const tensor::LossGradientScope scope(gradient);
  sum.backward(at::full_like(sum, gradient));
}

}  // namespace

std::vector<parallel::Use> Strategy::Impl::order_of(std::size_t rounds, bool backward) const {
  if (runner) {
    const auto passes = static_cast<std::uint32_t>(rounds);
    return runner->uses(std::span(&passes, 1), backward);
  }
  std::vector<parallel::Use> order;
  const auto blocks = static_cast<std::uint32_t>(stage().members().size());
  for (std::uint32_t round = 0; round < rounds; ++round) {
    for (std::uint32_t block = 0; block < blocks; ++block)
      order.push_back({block, round, parallel::Phase::Forward});
    for (std::uint32_t block = blocks; backward && block-- > 0;)
      order.push_back({block, round, parallel::Phase::Backward});
  }
  return order;
}

// Rounds of the rank of this group with the most micro-batches.
std::size_t Strategy::Impl::rounds_of(std::uint32_t micro_batches) const {
  const int first = grid.data().rank() / plan.assignment.members * plan.assignment.members;
  return leaves_of(plan.assignment, micro_batches, first).size();
}

// If ranks share weights, those of the pipeline of the group with the most micro-batches.
std::uint32_t Strategy::Impl::passes_of(std::uint32_t micro_batches) const {
  if (plan.shards_weights) return static_cast<std::uint32_t>(rounds_of(micro_batches));
  return static_cast<std::uint32_t>(
      leaves_of(plan.assignment, micro_batches, grid.data().rank()).size());
}

// Forward and backward of one micro-batch; the summed loss.
double Strategy::Impl::compute(const MicroBatch& micro, const Loss& loss, LocalVote& local_vote) {
  const at::Tensor sum = [&] {
    const auto span = traced("forward");
    if (pins) pins->begin(micro.index);
    return summed_loss(stage(), micro, step, loss, pins ? pins->enter() : parallel::Stage::Enter());
  }();
  const double value = sum.item<double>();
  local_vote.check_loss(micro.index, value);
  const auto span = traced("backward");
  run_back(sum, loss_gradient(micro.count));
  whole().statistics.capture();
  return value;
}

// Every rank goes through all its micro-batches even if one fails: the others wait for its part of
// each reduction, and learn of the error in the vote.
void Strategy::Impl::compute_all(const Batch& batch, const Loss& loss, ScalarTree& losses,
                                 LocalVote& local_vote) {
  const auto leaves = leaves_of(plan.assignment, total, grid.data().rank());
  if (batch.micro.size() != leaves.size())
    local_vote.refuse(23,
                      "it was given " + std::to_string(batch.micro.size()) +
                          " micro-batches, its share is " + std::to_string(leaves.size()),
                      kShareAdvice);
  for (const auto& part : parts.parts())
    if (const std::string what = part->store.replaced(part->blocks.members()); !what.empty())
      local_vote.refuse(20, what, "Make a new Strategy of the changed model.");
  if (runner)
    return runner->train(
        batch, leaves, passes_of(total), loss,
        [this](std::int64_t count) { return loss_gradient(count); }, losses, local_vote);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (local_vote.ok && start_lanes(batch, leaves, i)) {
      const auto rest = std::span(batch.micro).subspan(i);
      return compute_in_lanes(rest, leaves[i], loss, losses, local_vote);
    }
    begin_micro(leaves[i], i < batch.micro.size() ? batch.micro[i].count : 0);
    double value = 0;
    try {
      if (local_vote.ok && batch.micro[i].index != microbatch)
        local_vote.refuse(23,
                          "it was given micro-batch " + std::to_string(batch.micro[i].index) +
                              " in the place of " + std::to_string(microbatch) + wrong_share(),
                          kShareAdvice);
      if (local_vote.ok) {
        value = compute(batch.micro[i], loss, local_vote);
        local_vote.count += batch.micro[i].count;
      }
    } catch (...) {
      // Ranks that share a layer cannot go on without this rank.
      if (grid.layer != nullptr) throw;
      local_vote.refuse(describe(std::current_exception()));
    }
    if (pins) pins->end();
    end_micro(local_vote.ok ? batch.micro[i].count : 0);
    losses.add(value);
    has_run = true;
  }
}

std::string Strategy::Impl::wrong_share() const {
  if (!plan.sharded()) return {};
  return "; under " + plan.sync + " micro-batches are dealt out in turn (Job::assignment)";
}

// Whether lanes compute the rest of this step's micro-batches. The very first micro-batch runs
// without lanes, to show whether a block draws from the generator that all threads share.
bool Strategy::Impl::start_lanes(const Batch& batch, std::span<const std::uint32_t> leaves,
                                 std::size_t begin) {
  if (options.lanes == 1 || leaves.size() - begin < 2 || !lanes_note.empty()) return false;
  for (std::size_t i = begin; i < leaves.size(); ++i)
    if (batch.micro[i].index != leaves[i]) return false;  // refused when it is computed
  if (lanes) return true;
  lanes_note = why_one_lane();
  if (!lanes_note.empty() || !has_run) return false;
  lanes = std::make_unique<parallel::Lanes>(
      model, options.seed, store().leaves(),
      parallel::LanesOptions{.count = options.lanes,
                             .recompute = memory::parse_recompute(options.recompute),
                             .offload_activations = options.offload_activations},
      env.world->waiter());
  for (int lane = 0; lane < lanes->count(); ++lane)
    lane_statistics[&lanes->stage(lane)] =
        std::make_unique<parallel::BatchStatistics>(lanes->stage(lane));
  return true;
}

// Why lanes cannot be used; empty: they can.
std::string Strategy::Impl::why_one_lane() const {
  if (plan.assignment.members > 1)
    return "under " + plan.sync + " the ranks compute one micro-batch each at a time";
  for (const auto& [name, buffer] : store().buffers())
    if (!whole().statistics.covers(buffer))
      return "\"" + name + "\" is a buffer, which micro-batches change in their order";
  if (env.world->transport_name() == "sim") return "simulated ranks are threads already";
  if (!stage().drawing_block().empty())
    return "block \"" + stage().drawing_block() +
           "\" draws from LibTorch's default generator, one for the whole process";
  return {};
}

// The micro-batches from number `first` on.
void Strategy::Impl::compute_in_lanes(std::span<const MicroBatch> micros, std::uint32_t first,
                                      const Loss& loss, ScalarTree& losses, LocalVote& local_vote) {
  const std::uint64_t position = tensor::default_generator_position();
  std::vector<std::vector<double>> pairs(micros.size());
  const auto compute = [&](parallel::Stage& blocks, std::size_t task) {
    const at::Tensor sum = summed_loss(blocks, micros[task], step, loss);
    run_back(sum, loss_gradient(micros[task].count));
    pairs[task] = lane_statistics.at(&blocks)->take();
    return sum.item<double>();
  };
  const parallel::Lanes::Sink sink = {
      .begin =
          [&](std::size_t task) {
            begin_micro(first + static_cast<std::uint32_t>(task), micros[task].count);
          },
      .gradient = [&](std::size_t leaf, at::Tensor gradient) { take(leaf, std::move(gradient)); },
      .end =
          [&](std::size_t task, double value, const std::exception_ptr& error) {
            if (error) {
              local_vote.refuse(describe(error));
            } else {
              local_vote.check_loss(micros[task].index, value);
              local_vote.count += micros[task].count;
              whole().statistics.capture(pairs[task]);
            }
            end_micro(error ? 0 : micros[task].count);
            losses.add(value);
          }};
  const auto span = traced("lanes");
  lanes->run(micros.size(), compute, sink);
  if (position != tensor::default_generator_position())
    local_vote.refuse(
        20,
        "LibTorch's default generator was drawn from while lanes computed, so the numbers "
        "depend on their timing",
        "Set train.lanes = 1.");
}

void Strategy::Impl::apply(StepResult& result) {
  sync->settle();
  const double scale = result.count > 0 ? 1.0 / static_cast<double>(result.count) : 0.0;
  const bool measures = result.count > 0 && (options.clip > 0 || outliers || noise);
  double norm = 0;
  if (measures) {
    norm = std::sqrt(sync->squared_norm()) / static_cast<double>(result.count);
    result.gradient_norm = norm;
  }
  // A finite norm implies that every gradient is finite.
  if (!measures || !std::isfinite(norm))
    parallel::refuse_overflow(
        *sync, [this](std::size_t parameter) { return parts.parameters()[parameter].name; },
        *env.world, env.host, static_cast<long>(step));
  if (!equal_gradients) require_equal_gradients();
  if (!judge(result)) return drop();
  if (noise) {
    noise->finish(norm, result.count);
    result.noise_scale = noise->scale();
  }
  for (const auto& part : parts.parts()) part->statistics.fold(*part->data, plan.assignment, total);
  update(scale * clipping(norm));
}

// Only once: it depends on how blocks are written. If owners cut gradients, the slices of
// tensor-parallel ranks are not comparable.
void Strategy::Impl::require_equal_gradients() {
  equal_gradients = true;
  if (grid.context != nullptr) parallel::require_equal_gradients(*grid.context, sync->owned());
  const auto compare = [this](comm::Communicator& group, const auto& has_part) {
    std::vector<optim::OwnedSlice> whole;
    for (const optim::OwnedSlice& slice : sync->owned())
      if (!has_part(parts.parameters()[slice.parameter].part)) whole.push_back(slice);
    parallel::require_equal_gradients(group, whole);
  };
  if (grid.expert != nullptr)
    compare(*grid.expert, [](const models::Part& part) { return part.places > 1; });
  if (grid.tensor != nullptr && !plan.sharded())
    compare(*grid.tensor, [](const models::Part& part) { return part.of > 1; });
}

// 1 if the norm is within bounds (or was not computed).
double Strategy::Impl::clipping(double norm) const {
  if (options.clip <= 0 || norm <= options.clip) return 1;
  return options.clip / (norm + 1e-6);  // as torch clip_grad_norm_
}

void Strategy::Impl::update(double scale) {
  const auto span = traced("optimizer");
  optimizer->apply(learning_rate, scale);
  if (average) average->update(sync->owned());
  sync->publish().wait();
}

// Before the vote of a local step: finds what the others have to know of this rank's gradient.
void Strategy::Impl::settle_own(LocalVote& local_vote) {
  if (!steps_alone() || local_vote.overflow)
    return;  // an overflow in fp16 says nothing about the sum
  sync->settle();
  if (options.clip > 0) local_vote.squares = sync->squared_norm();
  if (options.clip > 0 && std::isfinite(local_vote.squares)) return;
  if (const std::int64_t parameter = sync->first_overflow(); parameter >= 0)
    local_vote.refuse(parallel::Refusal::kNotFinite,
                      "its gradient of " +
                          parts.parameters()[static_cast<std::size_t>(parameter)].name +
                          " is finite in every micro-batch, but their sum is not",
                      "lower the learning rate");
}

// local_sync.h explains the scale N/count.
void Strategy::Impl::apply_own(StepResult& result, double own_squares, double all_squares) {
  const double ranks = env.world->size();
  const double scale = result.count > 0 ? ranks / static_cast<double>(result.count) : 0.0;
  if (options.clip > 0) result.gradient_norm = std::sqrt(all_squares / ranks) * scale;
  whole().statistics.fold_own();
  update(scale * clipping(std::sqrt(own_squares) * scale));
  parts.reload_statistics();  // copies that were averaged have other buffers
}

void Strategy::Impl::drop() {
  sync->drop();
  parts.drop_statistics();
  for (const auto& [stage_of_lane, own] : lane_statistics) own->drop();
}

// A gradient that is not finite may be due to the loss scale; a loss cannot.
void Strategy::Impl::refuse(const parallel::Refusal& refusal, LocalVote& local_vote) const {
  if (refusal.exit_code == parallel::Refusal::kNotFinite && loss_scale && loss_scale->backs_off()) {
    local_vote.overflowed(refusal.reason);
  } else {
    local_vote.refuse(refusal);
  }
}

// Every rank has this verdict and the same scale.
void Strategy::Impl::back_off(const parallel::Verdict& verdict, StepResult& result) {
  const double before = loss_scale->scale();
  loss_scale->overflowed();
  drop();
  result.skipped = "on rank " + std::to_string(verdict.refusing_rank) + " " + verdict.reason +
                   "; the loss scale falls from " + std::to_string(std::llround(before)) + " to " +
                   std::to_string(std::llround(loss_scale->scale()));
}

// Every rank has this refusal and the same count.
void Strategy::Impl::leave_out(const StepRefused& refused, StepResult& result) {
  not_finite.take(refused);
  drop();
  result.skipped = refused.message();
  result.loss = std::numeric_limits<double>::quiet_NaN();  // not every rank has it
}

Duration Strategy::Impl::time_waited() const {
  Duration waited = grid.time_waited();
  for (const auto& group : {groups.exchange, groups.gather, groups.replicas})
    if (group) waited += group->time_waited();
  return waited;
}

bool Strategy::Impl::even(const MicroBatch& micro) const {
  return std::all_of(micro.fields.begin(), micro.fields.end(), [this](const auto& field) {
    return field.second.size(0) % grid.expert_ranks() == 0;
  });
}

MicroBatch Strategy::Impl::local_shard(const MicroBatch& micro, bool even) const {
  MicroBatch own = micro;
  if (grid.expert != nullptr && even)
    own = parallel::own_sequences(own, grid.expert->rank(), grid.expert->size());
  if (grid.context != nullptr)
    own = parallel::cut_positions(own, grid.context->rank(), grid.context->size());
  return own;
}

// In backward, the gradient of the whole sum is passed on to this rank's own sum.
at::Tensor Strategy::Impl::of_all_ranks(at::Tensor loss, bool even) const {
  if (grid.context != nullptr) loss = parallel::leave_cut(loss, *grid.context);
  if (grid.expert != nullptr && even) loss = parallel::leave_cut(loss, *grid.expert);
  return loss;
}

StepResult Strategy::Impl::run(const Batch& given, const Loss& own_loss) {
  TRIREME_CHECK(!averaged);
  Batch batch = given;
  for (MicroBatch& micro : batch.micro) micro = local_shard(micro, true);
  const Loss loss = [&](const models::Value& output, const MicroBatch& micro) {
    return of_all_ranks(own_loss(output, micro), true);
  };
  const auto span = traced("step");
  const TimePoint start = env.world->waiter()->now();
  const Duration waited = time_waited();
  step = batch.step;
  total = batch.total;
  env.set_step(static_cast<long>(step));
  sync->begin(total, order_of(plan.sharded() ? rounds_of(total) : 0, true));
  if (noise) noise->begin(total, plan.assignment, env.world->rank());
  const Work gate = enters_barrier_first() ? enter_barrier() : Work();
  if (grid.layer != nullptr) gate.wait();
  const auto scope = use_layers();
  ScalarTree losses(total, plan.assignment, grid.data().rank());
  LocalVote local_vote;
  try {
    compute_all(batch, loss, losses, local_vote);
  } catch (...) {
    give_up(std::current_exception());
    throw;
  }
  if (grid.layer != nullptr && grid.layer->rank() > 0) local_vote.count = 0;  // rank 0 counts
  local_vote.stop_signal = env.stop_signal();
  const Work reduced = sync->finish();
  const Work loss_sum = grid.last ? losses.reduce(*grid.last, env.reduce, "loss") : Work();
  if (const auto refusal = sync->refusal()) refuse(*refusal, local_vote);
  settle_own(local_vote);
  const parallel::Vote vote(*env.world, local_vote);
  const Work noise_sums = noise ? noise->reduce(*env.world, env.reduce) : Work();
  const std::array<Work, 6> works = {reduced,    loss_sum, vote.work(),
                                     noise_sums, gate,     runner ? runner->sent() : Work()};
  {
    const auto wait = traced("wait for gradients");
    Work::all(works).wait();
  }
  const parallel::Verdict verdict = vote.result();
  if (runner) runner->settle(verdict.ok);
  stop_signal = verdict.stop_signal;
  StepResult result{.count = verdict.count, .stop_signal = verdict.stop_signal};
  try {
    throw_if_refused(verdict, *env.world, env.host, static_cast<long>(step));
    double loss_of_all = grid.last != nullptr ? losses.sum() : 0;
    if (runner) runner->tell_all(std::span(&loss_of_all, 1));
    result.loss = loss_of_all / static_cast<double>(std::max<std::int64_t>(result.count, 1));
    if (verdict.overflow) {
      back_off(verdict, result);
    } else if (steps_alone()) {
      apply_own(result, local_vote.squares, verdict.squares);
    } else {
      apply(result);
    }
    if (loss_scale && !verdict.overflow) loss_scale->passed();
  } catch (const StepRefused& refused) {
    leave_out(refused, result);
  }
  result.skipped_steps = not_finite.left_out() + (outliers ? outliers->state.skipped : 0);
  if (loss_scale) {
    result.loss_scale = loss_scale->scale();
    result.overflows = loss_scale->state.overflows;
  }
  result.communication = time_waited() - waited;
  result.learning_rate = learning_rate;
  result.total = env.world->waiter()->now() - start;
  return result;
}

}  // namespace trireme::inline v0
