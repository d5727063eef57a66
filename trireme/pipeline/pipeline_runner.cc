#include "trireme/pipeline/pipeline_runner.h"

#include <ATen/ops/add.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/loss_gradient.h"

namespace trireme::inline v0::parallel {
namespace {

// The mode and field layouts, on which the shapes of a micro-batch's values depend.
std::string form_of(const MicroBatch& micro, const char* mode) {
  std::string form = mode;
  for (const auto& [name, field] : micro.fields)
    form += " " + name + " " + layout_of(field, false).text();
  return form;
}

ExecutorOptions executor_options(const StrategyContext& env, const PipelinePlan& plan,
                                 const Grid& grid, const ModelParts& parts) {
  ExecutorOptions options{.pipeline = grid.pipeline,
                          .rank_of_stage = plan.rank_of_stage(),
                          .values_after = parts.values_after()};
  if (env.trace)
    options.on_pass = [trace = env.trace](const plan::Action& action, TimePoint begin,
                                          TimePoint end) {
      trace->span(trace->lane("compute"), plan::text_of(action), begin, end);
    };
  return options;
}

}  // namespace

PipelineRunner::PipelineRunner(const StrategyContext& env, PipelinePlan& plan, const Grid& grid,
                               const ModelParts& parts, PipelineSync& sync, bool shares_weights)
    : plan_(plan), grid_(grid), executor_(executor_options(env, plan, grid, parts)) {
  for (std::size_t i = 0; i < parts.parts().size(); ++i) {
    ModelPart& model = *parts.parts()[i];
    ParameterSync& own = sync.of_part(i);
    std::unique_ptr<BlockPins> pins;
    if (shares_weights) pins = std::make_unique<BlockPins>(own, static_cast<std::uint32_t>(i));
    StagePasses passes(model.blocks, pins ? pins->enter() : Stage::Enter());
    parts_.push_back(std::make_unique<Part>(
        Part{.model = &model, .sync = &own, .pins = std::move(pins), .passes = std::move(passes)}));
    Part* part = parts_.back().get();
    for (std::size_t leaf = 0; leaf < model.store.leaves().size(); ++leaf)
      part->leaf_of[model.store.leaves()[leaf].unsafeGetTensorImpl()] = leaf;
    part->hooks = std::make_unique<GradientHooks>(
        model.store.leaves(), [this, part](std::size_t leaf, at::Tensor gradient) {
          take(*part, leaf, std::move(gradient));
        });
  }
}

PipelineRunner::Part& PipelineRunner::part_of(int stage) {
  for (const auto& part : parts_)
    if (part->model->stage == stage) return *part;
  TRIREME_CHECK(false);
  return *parts_.front();
}

bool PipelineRunner::is_last(const Part& part) const {
  return part.model->stage + 1 == plan_.stages();
}

void PipelineRunner::make_keys(std::span<const MicroBatch> micros, std::size_t count,
                               const char* mode) {
  keys_.assign(count, mode);
  for (std::size_t i = 0; i < std::min(count, micros.size()); ++i)
    keys_[i] = form_of(micros[i], mode);
}

std::vector<Use> PipelineRunner::uses(std::span<const std::uint32_t> passes, bool backward) {
  passes_before_ = 0;
  std::vector<Use> all;
  if (!parts_.front()->pins) return all;
  std::vector<StageBlocks> stages;
  for (const auto& part : parts_)
    stages.push_back(
        {part->model->stage, static_cast<std::uint32_t>(part->model->blocks.members().size())});
  const auto rank = static_cast<std::size_t>(grid_.pipeline->rank());
  std::uint32_t before = 0;
  for (const std::uint32_t count : passes) {
    if (count == 0) continue;
    for (Use use : backward ? uses_of(plan_.schedule(count).order[rank], stages)
                            : uses_of(plan_.forward_only(count).order[rank], stages)) {
      use.microbatch += before;
      all.push_back(use);
    }
    before += count;
  }
  return all;
}

void PipelineRunner::run(const plan::Schedule& schedule, std::uint32_t passes) {
  executor_.run(schedule, keys_, *this);
  passes_before_ += passes;
}

void PipelineRunner::train(const Batch& batch, std::span<const std::uint32_t> leaves,
                           std::uint32_t passes, const SumLoss& loss,
                           const LossGradient& loss_gradient, ScalarTree& losses,
                           LocalVote& local_vote) {
  micros_ = batch.micro;
  leaves_ = leaves;
  step_ = batch.step;
  loss_ = &loss;
  ballot_ = &local_vote;
  values_.assign(leaves.size(), 0);
  loss_gradients_.assign(leaves.size(), 1);
  for (std::size_t i = 0; i < std::min(leaves.size(), micros_.size()); ++i)
    loss_gradients_[i] = loss_gradient(micros_[i].count);
  for (const auto& part : parts_) {
    part->ran.assign(leaves.size(), false);
    part->batch_statistics.assign(leaves.size(), {});
  }
  make_keys(batch.micro, leaves.size(), "train");
  if (passes > 0) run(plan_.schedule(passes), passes);
  for (const auto& part : parts_)
    for (const auto& pairs : part->batch_statistics) part->model->statistics.capture(pairs);
  if (grid_.last == nullptr) return;
  for (const double value : values_) losses.add(value);
}

void PipelineRunner::settle(bool good) {
  executor_.settle(good);
  for (const auto& part : parts_) {
    part->passes.drop();
    part->waiting.clear();
  }
}

Parcel PipelineRunner::forward(int stage, std::uint32_t micro, Parcel in) {
  Part& part = part_of(stage);
  if (part.pins) part.pins->begin(micro);
  return loss_ != nullptr ? forward_training(part, micro, std::move(in))
                          : forward_alone(part, micro, std::move(in));
}

Parcel PipelineRunner::forward_training(Part& part, std::uint32_t micro, Parcel in) {
  if (!ballot_->ok) return {.failed = true};
  Parcel out;
  try {
    const MicroBatch& data = micros_[micro];
    if (is_last(part)) {
      const double value = part.passes.forward_loss(micro, data, step_, std::move(in), *loss_);
      values_[micro] = value;
      ballot_->count += data.count;
      ballot_->check_loss(data.index, value);
    } else {
      out = part.passes.forward(micro, data, step_, std::move(in));
    }
    if (!part.model->statistics.empty())
      part.batch_statistics[micro] = part.model->statistics.take();
    part.ran[micro] = true;
  } catch (...) {
    refuse(std::current_exception());
    return {.failed = true};
  }
  return out;
}

Parcel PipelineRunner::run_back(Part& part, std::uint32_t micro, Phase phase,
                                const Parcel& gradients) {
  if (part.pins) part.pins->begin(micro, phase);
  if (!ballot_->ok || gradients.failed || !part.ran[micro]) return {.failed = true};
  const tensor::LossGradientScope scope(loss_gradients_[micro]);
  try {
    return part.passes.backward(micro, gradients);
  } catch (...) {
    refuse(std::current_exception());
    return {.failed = true};
  }
}

void PipelineRunner::begin_micro(Part& part, std::uint32_t micro) {
  part.micro = micro;
  part.sync->begin_micro(leaves_[micro], 1 / loss_gradients_[micro]);
}

Parcel PipelineRunner::backward(int stage, std::uint32_t micro, Parcel gradients) {
  Part& part = part_of(stage);
  begin_micro(part, micro);
  Parcel back = run_back(part, micro, Phase::Backward, gradients);
  if (part.pins) part.pins->end();  // before end_micro() skips uses
  part.sync->end_micro();
  return back;
}

Parcel PipelineRunner::backward_input(int stage, std::uint32_t micro, Parcel gradients) {
  Part& part = part_of(stage);
  part.micro = micro;
  part.keeps_waiting = true;
  const tensor::DeferScope defer(part.waiting[micro].deferred);
  Parcel back = run_back(part, micro, Phase::Input, gradients);
  part.keeps_waiting = false;
  return back;
}

// Block after block, in the order of a whole backward pass, so that the gradients of at most one
// block are in memory at a time.
void PipelineRunner::backward_weight(int stage, std::uint32_t micro) {
  Part& part = part_of(stage);
  begin_micro(part, micro);
  if (auto waiting = part.waiting.extract(micro)) {
    for (std::size_t i = part.model->blocks.members().size(); i-- > 0;) {
      const auto block = static_cast<std::uint32_t>(i);
      try {
        if (part.pins) part.pins->weight_gradients(block);
        if (ballot_->ok) compute_deferred(part, waiting.mapped(), block);
      } catch (...) {
        refuse(std::current_exception());
      }
      hand_on(part, waiting.mapped(), block);
    }
  }
  part.sync->end_micro();
}

// Several uses of a parameter in one block are added as autograd does, in the order in which they
// come.
void PipelineRunner::compute_deferred(Part& part, Part::Waiting& waiting, std::uint32_t block) {
  const c10::AutoGradMode no_grad(false);
  for (tensor::DeferredGradient& one : waiting.deferred) {
    if (!one.compute) continue;  // computed already
    const auto leaf = part.leaf_of.find(one.parameter.unsafeGetTensorImpl());
    if (leaf == part.leaf_of.end()) continue;  // not a parameter
    if (part.model->store.use_of_leaf()[leaf->second].block != block) continue;
    at::Tensor& sum = waiting.gradients[leaf->second];
    const at::Tensor gradient = one.compute();
    sum = sum.defined() ? at::add(sum, gradient) : gradient;
    one = {};  // frees its activations
  }
}

void PipelineRunner::hand_on(Part& part, Part::Waiting& waiting, std::uint32_t block) {
  for (auto& [leaf, gradient] : waiting.gradients)
    if (gradient.defined() && part.model->store.use_of_leaf()[leaf].block == block)
      take(part, leaf, std::exchange(gradient, {}));
}

// Also called if the pass was not run. If weights are whole, phases have no uses.
void PipelineRunner::end_pass(plan::ActionKind pass, int stage, std::uint32_t micro) {
  Part& part = part_of(stage);
  if (part.pins) part.pins->end();
  part.sync->end_pass(passes_before_ + micro, phase_of(pass));
}

void PipelineRunner::take(Part& part, std::size_t leaf, at::Tensor gradient) {
  if (part.keeps_waiting) {
    part.waiting[part.micro].gradients[leaf] = std::move(gradient);
  } else {
    part.sync->gradient(part.model->store.use_of_leaf()[leaf], leaves_[part.micro],
                        std::move(gradient));
  }
}

void PipelineRunner::refuse(const std::exception_ptr& error) {
  // Ranks that share a layer cannot go on without this rank.
  if (grid_.layer != nullptr) std::rethrow_exception(error);
  if (ballot_ == nullptr) {
    if (!error_) error_ = error;
    return;
  }
  ballot_->refuse(describe(error));
}

Parcel PipelineRunner::forward_alone(Part& part, std::uint32_t micro, Parcel in) {
  if (error_) return {.failed = true};
  try {
    if (!is_last(part)) return part.passes.forward(micro, micros_[micro], 0, std::move(in));
    (*output_)(micro, part.passes.forward_value(micros_[micro], 0, std::move(in)));
    return {};
  } catch (...) {
    refuse(std::current_exception());
    return {.failed = true};
  }
}

void PipelineRunner::forward_only(std::span<const MicroBatch> micros, std::uint32_t passes,
                                  const Output& output) {
  const c10::AutoGradMode no_grad(false);
  micros_ = micros;
  loss_ = nullptr;
  ballot_ = nullptr;
  output_ = &output;
  error_ = nullptr;
  make_keys(micros, micros.size(), "evaluate");
  run(plan_.forward_only(passes), passes);
  if (error_) std::rethrow_exception(error_);
}

models::Value PipelineRunner::last_value(const MicroBatch& micro) {
  models::Value last;
  forward_only(std::span(&micro, 1), 1,
               [&](std::size_t, const models::Value& value) { last = value; });
  return last;
}

// Broadcasts the layouts first.
models::Value PipelineRunner::tell_all(models::Value value) const {
  Parcel parcel{.counts = {value.size()}};
  for (const at::Tensor& tensor : value) {
    parcel.layouts.push_back(layout_of(tensor, false));
    parcel.tensors.push_back(fitted(tensor, parcel.layouts.back()));
  }
  std::vector<std::int64_t> words = words_of(parcel);
  std::vector<std::int64_t> size{static_cast<std::int64_t>(words.size())};
  const int root = plan_.last_rank();
  grid_.pipeline->broadcast(Buffer::of(std::span(size)), root, {.label = "value"}).wait();
  words.resize(static_cast<std::size_t>(size[0]));
  grid_.pipeline->broadcast(Buffer::of(std::span(words)), root, {.label = "value"}).wait();
  if (grid_.last == nullptr) {
    parcel = parcel_of(words);
    for (const TensorLayout& layout : parcel.layouts) parcel.tensors.push_back(layout.allocate());
  }
  for (const at::Tensor& tensor : parcel.tensors)
    grid_.pipeline
        ->broadcast({tensor.data_ptr(), tensor.nbytes(), DType::U8}, root, {.label = "value"})
        .wait();
  return parcel.tensors;
}

void PipelineRunner::tell_all(std::span<double> values) const {
  grid_.pipeline->broadcast(Buffer::of(values), plan_.last_rank(), {.label = "loss"}).wait();
}

}  // namespace trireme::inline v0::parallel
