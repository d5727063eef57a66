#include "trireme/parallel/strategy.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <array>
#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/weights_hash.h"
#include "trireme/parallel/agreement.h"
#include "trireme/parallel/data/autograd_hooks.h"
#include "trireme/parallel/lanes.h"
#include "trireme/parallel/overflow.h"
#include "trireme/parallel/replicas.h"
#include "trireme/parallel/replicate.h"
#include "trireme/parallel/scalar_tree.h"
#include "trireme/parallel/seat.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/cross_entropy.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/random.h"

namespace trireme {
inline namespace v0 {
namespace {

using parallel::Ballot;
using parallel::ScalarTree;

void check_options(const StrategyOptions& options, const parallel::Seat& seat) {
  const auto refuse = [&](const std::string& what, const std::string& advice) {
    throw ConfigError(what,
                      {.rank = seat.world->rank(), .operation = "strategy", .advice = advice});
  };
  if (options.sync != "plain")
    refuse("parallel.sync = \"" + options.sync + "\" is not in this release", "Use plain.");
  if (options.pipeline != 1 || options.shard != 1 || options.context != 1 || options.tensor != 1)
    refuse("only the data axis is in this release", "Leave the other axes at 1.");
  if (options.data != 0 && options.data != seat.world->size())
    refuse("parallel.data = " + std::to_string(options.data) + ", the job has " +
               std::to_string(seat.world->size()) + " ranks",
           "Leave it out, or start that many ranks.");
  if (options.lanes < 1) refuse("train.lanes = " + std::to_string(options.lanes), "Use 1 or more.");
  tensor::compute_type(options.precision);  // throws for an unknown one
}

// Before the model is built, since building already computes.
StrategyOptions prepared(StrategyOptions options, const parallel::Seat& seat) {
  check_options(options, seat);
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
        options(prepared(std::move(own_options), seat)),
        stage(own_model, options.seed),
        replicas(make_replicas(stage, own_model.ties(), options.precision)),
        model(own_model),
        sync(*seat.world, replicas.uses, replicas.parameter_of, replicas.slices(),
             {.bucket_bytes = options.bucket_bytes,
              .reduce = seat.reduce,
              .before_launch = [this] { return enter_gate(); },
              .compression = options.compression,
              .seed = options.seed}),
        optimizer(std::move(own_optimizer)),
        hooks(replicas.leaves, [this](std::size_t leaf, at::Tensor gradient) {
          sync.gradient(replicas.use_of_leaf[leaf], microbatch, std::move(gradient));
        }) {
    learning_rate = optimizer->base_learning_rate();
    optimizer->attach(sync.owned());
    parallel::replicate(*seat.world, content(), seat.host);
    replicas.refresh();
    stage.train(true);
  }

  observe::TracedScope traced(const char* what) const {
    return {seat.trace.get(), *seat.world->waiter(), what};
  }

  Work enter_gate() {
    return parallel::enter_gate(*seat.world, {.batch = step, .total = total}, seat.host);
  }

  parallel::NamedTensors content() const {
    parallel::NamedTensors tensors;
    for (const auto& parameter : replicas.parameters)
      tensors.emplace_back(parameter.name, parameter.master);
    for (const auto& buffer : replicas.buffers) tensors.push_back(buffer);
    return tensors;
  }

  void refuse(Ballot& ballot, int exit_code, const std::string& reason) {
    if (!ballot.ok) return;
    ballot.ok = false;
    ballot.exit_code = exit_code;
    ballot.reason = reason;
  }

  // A scalar under autograd.
  static at::Tensor summed_loss(parallel::Stage& blocks, const MicroBatch& micro, std::int64_t step,
                                const Loss& loss) {
    at::Tensor sum = loss(blocks.forward(micro, step), micro);
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
      return summed_loss(stage, micro, step, loss);
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
    const kernel::LeafRange share = sync.plan().share;
    if (batch.micro.size() != share.count)
      refuse(ballot, 23,
             "it was given " + std::to_string(batch.micro.size()) +
                 " micro-batches, its share is " + std::to_string(share.count));
    for (std::uint32_t i = 0; i < share.count; ++i) {
      if (ballot.ok && start_lanes(batch, share, i)) {
        const auto rest = std::span(batch.micro).subspan(i);
        return compute_in_lanes(rest, share.first + i, loss, losses, ballot);
      }
      microbatch = share.first + i;
      sync.begin_micro(microbatch, 1);
      double value = 0;
      try {
        if (ballot.ok && batch.micro[i].index != microbatch)
          refuse(ballot, 23,
                 "it was given micro-batch " + std::to_string(batch.micro[i].index) +
                     " in the place of " + std::to_string(microbatch));
        if (ballot.ok) {
          value = compute(batch.micro[i], loss, ballot);
          ballot.count += batch.micro[i].count;
        }
      } catch (...) {
        const ErrorReport report = describe(std::current_exception());
        refuse(ballot, report.exit_code, report.sentence);
      }
      sync.end_micro();
      losses.add(value);
      has_run = true;
    }
  }

  // Whether the rest of this step's micro-batches goes to lanes. The first micro-batch of all runs
  // without them: it shows whether a block draws from the one generator that all threads share.
  bool start_lanes(const Batch& batch, kernel::LeafRange share, std::uint32_t begin) {
    if (options.lanes == 1 || share.count - begin < 2 || !lanes_note.empty()) return false;
    for (std::uint32_t i = begin; i < share.count; ++i)
      if (batch.micro[i].index != share.first + i) return false;  // refused where it is computed
    if (lanes) return true;
    if (!replicas.buffers.empty())
      lanes_note = "\"" + replicas.buffers.front().first +
                   "\" is a buffer, which micro-batches change in their order";
    else if (seat.world->transport_name() == "sim")
      lanes_note = "simulated ranks are threads already";
    else if (!stage.drawing_block().empty())
      lanes_note = "block \"" + stage.drawing_block() +
                   "\" draws from LibTorch's default generator, one for the whole process";
    if (!lanes_note.empty() || !has_run) return false;
    lanes = std::make_unique<parallel::Lanes>(model, options.seed, replicas.leaves, options.lanes,
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
              sync.begin_micro(microbatch, 1);
            },
        .gradient =
            [&](std::size_t leaf, at::Tensor gradient) {
              sync.gradient(replicas.use_of_leaf[leaf], microbatch, std::move(gradient));
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
              sync.end_micro();
              losses.add(value);
            }};
    const auto span = traced("lanes");
    lanes->run(micros.size(), compute, sink);
    if (position != tensor::default_generator_position())
      refuse(ballot, 20,
             "LibTorch's default generator was drawn from while lanes computed, so the numbers "
             "depend on their timing; set train.lanes = 1");
  }

  // The global norm of the mean gradient: chunk sums folded in (parameter, chunk) order.
  double gradient_norm(std::int64_t count) {
    std::vector<double> squares;
    for (const optim::OwnedSlice& slice : sync.owned()) optim::chunk_squares(slice, squares);
    double sum = 0;
    for (const double square : squares) sum += square;
    return std::sqrt(sum) / static_cast<double>(count);
  }

  void apply(StepResult& result) {
    sync.add_uses();
    double scale = result.count > 0 ? 1.0 / static_cast<double>(result.count) : 0.0;
    const bool clips = options.clip > 0 && result.count > 0;
    if (clips) result.gradient_norm = gradient_norm(result.count);
    // A finite norm says that everything under it is.
    if (!clips || !std::isfinite(result.gradient_norm))
      parallel::refuse_overflow(sync.owned(), *seat.world, seat.host, static_cast<long>(step));
    if (clips) {
      if (result.gradient_norm > options.clip)
        scale *= options.clip / (result.gradient_norm + 1e-6);  // as torch clip_grad_norm_
    }
    const auto span = traced("optimizer");
    optimizer->apply(learning_rate, scale);
    sync.publish().wait();
  }

  StepResult run(const Batch& batch, const Loss& loss) {
    const auto span = traced("step");
    const TimePoint start = seat.world->waiter()->now();
    const Duration waited = seat.world->time_waited();
    step = batch.step;
    total = batch.total;
    seat.set_step(static_cast<long>(step));
    sync.begin(total, {});
    ScalarTree losses(sync.plan());
    Ballot ballot;
    compute_all(batch, loss, losses, ballot);
    ballot.stop_signal = seat.stop_signal();
    const Work reduced = sync.finish();
    const Work loss_sum = losses.reduce(*seat.world, seat.reduce, "loss");
    if (const auto refusal = sync.refusal()) refuse(ballot, refusal->exit_code, refusal->reason);
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
    apply(result);
    result.communication = seat.world->time_waited() - waited;
    result.total = seat.world->waiter()->now() - start;
    return result;
  }

  double evaluate(const std::vector<Batch>& batches, const Loss& loss) {
    const c10::AutoGradMode no_grad(false);
    stage.train(false);
    std::deque<ScalarTree> sums;  // the reductions point into it
    std::vector<Work> works;
    std::int64_t count = 0;
    for (const Batch& batch : batches) {
      ScalarTree& sum = sums.emplace_back(
          parallel::make_leaf_plan(batch.total, seat.world->size(), seat.world->rank()));
      for (const MicroBatch& micro : batch.micro)
        sum.add(loss(stage.forward(micro, 0), micro).item<double>());
      works.push_back(sum.reduce(*seat.world, seat.reduce, "validation loss"));
      count += batch.global_count;
    }
    stage.train(true);
    Work::all(works).wait();
    double total_loss = 0;
    for (const ScalarTree& sum : sums) total_loss += sum.sum();
    return count > 0 ? total_loss / static_cast<double>(count) : 0.0;
  }

  std::vector<NamedShard> state() {
    std::vector<NamedShard> shards;
    for (const auto& [name, tensor] : content()) {
      shards.push_back({.name = name,
                        .dtype = tensor::dtype_of(tensor),
                        .shape = tensor.sizes().vec(),
                        .begin = 0,
                        .end = tensor.numel(),
                        .local = tensor});
    }
    for (NamedShard& shard : optimizer->state(replicas.shapes)) {
      shard.name = "optimizer/" + shard.name;
      shards.push_back(std::move(shard));
    }
    return shards;
  }

  parallel::Seat seat;
  StrategyOptions options;
  parallel::Stage stage;
  parallel::Replicas replicas;
  const models::Blocks model;  // what lanes are built from
  std::unique_ptr<parallel::Lanes> lanes;
  std::string lanes_note;        // why there are none, though they were asked for
  bool has_run = false;          // a micro-batch has been computed
  std::uint32_t microbatch = 0;  // the one that is computed now
  std::int64_t step = 0;
  std::uint32_t total = 0;
  bool failed = false;  // a step has thrown: the others know
  double learning_rate = 0;
  parallel::PlainSync sync;
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
    impl_->sync.drop();
    throw;  // every rank has it and may go on
  } catch (...) {
    impl_->failed = true;
    throw;
  }
}

double Strategy::evaluate(const std::vector<Batch>& batches, const Loss& loss) {
  return impl_->evaluate(batches, loss);
}

models::Value Strategy::infer(const MicroBatch& micro) {
  const c10::AutoGradMode no_grad(false);
  impl_->stage.train(false);
  models::Value value = impl_->stage.forward(micro, 0);
  impl_->stage.train(true);
  return value;
}

void Strategy::set_learning_rate(double learning_rate) { impl_->learning_rate = learning_rate; }
std::int64_t Strategy::num_parameters() const { return impl_->replicas.num_elements(); }
int Strategy::lanes() const { return impl_->lanes ? impl_->lanes->count() : 1; }
std::string Strategy::lanes_note() const { return impl_->lanes_note; }
std::int64_t Strategy::gradient_bytes() const {
  return static_cast<std::int64_t>(impl_->sync.arena_bytes());
}

std::string Strategy::weights_hash() {
  std::vector<HashedTensor> tensors;
  for (const auto& [name, tensor] : impl_->content()) {
    const Buffer buffer = tensor::to_buffer(tensor);
    tensors.push_back({name, buffer.dtype, tensor.sizes().vec(), buffer.as_bytes()});
  }
  return trireme::weights_hash(std::move(tensors));
}

std::vector<NamedShard> Strategy::state() { return impl_->state(); }

std::string Strategy::metadata() const {
  return nlohmann::json{{"optimizer_steps", impl_->optimizer->step_count()}}.dump();
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
  impl_->optimizer->set_step_count(json["optimizer_steps"].get<std::int64_t>());
  impl_->replicas.refresh();
}

}  // namespace v0
}  // namespace trireme
