#include "trireme/pipeline/stage_runner.h"

#include <ATen/ops/add.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/functions/loss_gradient.h"

namespace trireme::inline v0::parallel {

StageRunner::LocalStage::LocalStage(ModelPart& part, ParameterSync& own_sync,
                                    GradientObserver* observer)
    : model(&part),
      sync(&own_sync),
      feed(own_sync, part.store.use_of_leaf(), observer),
      passes(part.blocks) {
  for (std::size_t leaf = 0; leaf < part.store.leaves().size(); ++leaf)
    leaf_of[part.store.leaves()[leaf].unsafeGetTensorImpl()] = leaf;
}

StageRunner::StageRunner(const StrategyContext& env, PipelinePlan& plan, const Grid& grid,
                         const ModelParts& parts, const std::vector<ParameterSync*>& syncs,
                         StageRunnerOptions options)
    : plan_(plan),
      grid_(grid),
      options_(std::move(options)),
      device_(tensor::at_device(parts.parts().front()->store.device())),
      executor_({.pipeline = grid.pipeline,
                 .rank_of_stage = plan.rank_of_stage(),
                 .device = device_,
                 .values_after = parts.values_after(),
                 .on_pass = recorder(env.trace),
                 .waiter = env.world->waiter()}) {
  if (options_.graphs) graphs_.emplace(device_);
  for (std::size_t i = 0; i < parts.parts().size(); ++i) {
    ModelPart& model = *parts.parts()[i];
    parts_.push_back(
        std::make_unique<LocalStage>(model, *syncs[i], i == 0 ? options_.observer : nullptr));
    LocalStage* part = parts_.back().get();
    if (options_.in_order) part->pins.emplace(*syncs[i], static_cast<std::uint32_t>(i));
    part->hooks.emplace(model.store.leaves(), [part](std::size_t leaf, at::Tensor gradient) {
      part->take(leaf, std::move(gradient));
    });
  }
}

// Without a pipeline, a timeline shows "forward" and "backward", of training only.
OnPass StageRunner::recorder(std::shared_ptr<observe::Trace> trace) const {
  if (!trace) return {};
  return [this, trace](const plan::Action& action, TimePoint begin, TimePoint end) {
    std::string name = plan::text_of(action);
    if (grid_.pipeline == nullptr) {
      if (loss_ == nullptr) return;
      name = action.kind == plan::ActionKind::Forward ? "forward" : "backward";
    }
    trace->span(trace->lane("compute"), name, begin, end);
  };
}

StageRunner::LocalStage& StageRunner::part_of(int stage) {
  for (const auto& part : parts_)
    if (part->model->stage == stage) return *part;
  TRIREME_CHECK(false);
  return *parts_.front();
}

std::vector<Use> StageRunner::uses(std::span<const std::uint32_t> passes, bool backward) {
  passes_before_ = 0;
  std::vector<Use> all;
  if (!(backward ? options_.in_order : options_.shares_weights)) return all;
  std::vector<StageBlocks> stages;
  for (const auto& part : parts_)
    stages.push_back(
        {part->model->stage, static_cast<std::uint32_t>(part->model->blocks.members().size())});
  const std::size_t rank =
      grid_.pipeline == nullptr ? 0 : static_cast<std::size_t>(grid_.pipeline->rank());
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

// The executor exchanges the shapes of values once for each form of micro-batch.
void StageRunner::run(const plan::Schedule& schedule, std::size_t micros, std::uint32_t passes,
                      const char* mode) {
  std::vector<std::string> forms(micros, mode);
  if (grid_.pipeline != nullptr)
    for (std::size_t i = 0; i < std::min(micros, micros_.size()); ++i)
      forms[i] += layouts_of(micros_[i]);
  executor_.run(schedule, forms, *this);
  passes_before_ += passes;
}

void StageRunner::train(const Share& share, std::int64_t step, const SumLoss& loss,
                        ScalarTree& losses, LocalVote& local_vote) {
  micros_ = share.micros;
  leaves_ = share.leaves;
  step_ = step;
  loss_ = &loss;
  vote_ = &local_vote;
  sums_.assign(leaves_.size(), {});
  loss_gradients_.assign(leaves_.size(), 1);
  for (std::size_t i = 0; i < std::min(leaves_.size(), micros_.size()); ++i)
    loss_gradients_[i] = options_.loss_gradient(micros_[i].count);
  for (const auto& part : parts_) {
    part->ran.assign(leaves_.size(), false);
    part->batch_statistics.assign(leaves_.size(), {});
  }
  if (share.passes > 0) run(plan_.schedule(share.passes), leaves_.size(), share.passes, "train");
  for (const auto& part : parts_)
    for (const auto& pairs : part->batch_statistics) part->model->statistics.capture(pairs);
  if (grid_.last == nullptr) return;
  std::vector<double> values(sums_.size(), 0);
  try {
    values = tensor::numbers_of(sums_);
  } catch (...) {
    refuse(std::current_exception());
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (sums_[i].defined()) vote_->check_loss(micros_[i].index, values[i]);
    losses.add(values[i]);
  }
}

void StageRunner::settle(bool good) {
  executor_.settle(good);
  for (const auto& part : parts_) {
    part->passes.drop();
    part->waiting.clear();
    part->kept = nullptr;
    part->replayed = nullptr;
  }
}

Parcel StageRunner::forward(int stage, std::uint32_t micro, Parcel in) {
  LocalStage& part = part_of(stage);
  Stage::Enter around;
  if (part.pins && (loss_ != nullptr || options_.shares_weights)) {
    part.pins->begin(micro);
    around = part.pins->enter();
  }
  return loss_ != nullptr ? forward_training(part, micro, std::move(in), around)
                          : forward_alone(part, micro, std::move(in), around);
}

Parcel StageRunner::forward_training(LocalStage& part, std::uint32_t micro, Parcel in,
                                     const Stage::Enter& around) {
  if (!vote_->ok) return {.failed = true};
  Parcel out;
  try {
    const MicroBatch& data = micros_[micro];
    if (is_last(part)) {
      if (!replay(part, micro))
        sums_[micro] = part.passes.forward_loss(micro, data, step_, std::move(in), *loss_, around);
      const at::Tensor& sum = sums_[micro];
      vote_->count += data.count;
      // On a device it is read at the end of train(), since reading waits for the device.
      if (sum.is_cpu()) vote_->check_loss(data.index, sum.item<double>());
    } else {
      out = part.passes.forward(micro, data, step_, std::move(in), around);
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

// True if a graph has run both passes.
bool StageRunner::replay(LocalStage& part, std::uint32_t micro) {
  if (!graphs_) return false;
  TRIREME_CHECK(part.replayed == nullptr);
  if (const std::string& block = part.model->blocks.drawing_block(); !block.empty())
    throw ConfigError("block \"" + block +
                          "\" draws from LibTorch's default generator, which is seeded " +
                          "for each micro-batch, and cannot be in a recorded pass",
                      {.operation = "step",
                       .label = "train.graphs",
                       .advice = "Leave train.graphs out, or the module's dropout."});
  const tensor::LossGradientScope scope(loss_gradients_[micro]);
  part.replayed =
      graphs_->run(micros_[micro], step_, loss_gradients_[micro],
                   [&](const MicroBatch& held) { return part.record(held, step_, *loss_); });
  if (part.replayed == nullptr) return false;
  sums_[micro] = part.replayed->loss.clone();
  return true;
}

PassGraphs::Result StageRunner::LocalStage::record(const MicroBatch& data, std::int64_t step,
                                                   const SumLoss& loss) {
  PassGraphs::Result result;
  recording = &result;
  try {
    result.loss = passes.forward_loss(0, data, step, {}, loss, {});
    passes.backward(0, {});
  } catch (...) {
    recording = nullptr;
    passes.drop();
    throw;
  }
  recording = nullptr;
  return result;
}

// From the last block to the first: ranks that own shards of the sums wait for them in this order.
void StageRunner::LocalStage::hand_on_replayed() {
  const PassGraphs::Result& result = *std::exchange(replayed, nullptr);
  for (std::size_t i = model->blocks.members().size(); i-- > 0;) {
    const auto block = static_cast<std::uint32_t>(i);
    if (pins) pins->enter_backward(block);
    for (const auto& [leaf, gradient] : result.gradients)
      if (is_in(leaf, block)) take(leaf, gradient);
  }
}

Parcel StageRunner::run_back(LocalStage& part, std::uint32_t micro, Phase phase,
                             const Parcel& gradients) {
  if (part.pins) part.pins->begin(micro, phase);
  if (!vote_->ok || gradients.failed || !part.ran[micro]) return {.failed = true};
  const tensor::LossGradientScope scope(loss_gradients_[micro]);
  try {
    if (part.replayed == nullptr) return part.passes.backward(micro, gradients);
    part.hand_on_replayed();
    return {.counts = {0}};
  } catch (...) {
    refuse(std::current_exception());
    return {.failed = true};
  }
}

Parcel StageRunner::backward(int stage, std::uint32_t micro, Parcel gradients) {
  LocalStage& part = part_of(stage);
  part.feed.begin(leaves_[micro], 1 / loss_gradients_[micro]);
  Parcel back = run_back(part, micro, Phase::Backward, gradients);
  if (part.pins) part.pins->end();  // before the feed skips uses
  part.feed.end(vote_->ok ? micros_[micro].count : 0);
  return back;
}

Parcel StageRunner::backward_input(int stage, std::uint32_t micro, Parcel gradients) {
  LocalStage& part = part_of(stage);
  part.kept = &part.waiting[micro];
  const tensor::DeferScope defer(part.kept->deferred);
  Parcel back = run_back(part, micro, Phase::Input, gradients);
  part.kept = nullptr;
  return back;
}

// Block after block, in the order of a whole backward pass, so that the gradients of at most one
// block are in memory at a time.
void StageRunner::backward_weight(int stage, std::uint32_t micro) {
  LocalStage& part = part_of(stage);
  part.feed.begin(leaves_[micro], 1 / loss_gradients_[micro]);
  if (auto waiting = part.waiting.extract(micro)) {
    for (std::size_t i = part.model->blocks.members().size(); i-- > 0;) {
      const auto block = static_cast<std::uint32_t>(i);
      try {
        if (part.pins) part.pins->weight_gradients(block);
        if (vote_->ok) part.compute_deferred(waiting.mapped(), block);
      } catch (...) {
        refuse(std::current_exception());
      }
      part.hand_on(waiting.mapped(), block);
    }
  }
  part.feed.end(vote_->ok ? micros_[micro].count : 0);
}

// As autograd does, adds several uses of a parameter in one block in the order in which they come.
void StageRunner::LocalStage::compute_deferred(Waiting& work, std::uint32_t block) {
  const c10::AutoGradMode no_grad(false);
  for (tensor::DeferredGradient& one : work.deferred) {
    if (!one.compute) continue;  // computed already
    const auto leaf = leaf_of.find(one.parameter.unsafeGetTensorImpl());
    if (leaf == leaf_of.end()) continue;  // not a parameter
    if (!is_in(leaf->second, block)) continue;
    at::Tensor& sum = work.gradients[leaf->second];
    const at::Tensor gradient = one.compute();
    sum = sum.defined() ? at::add(sum, gradient) : gradient;
    one = {};  // frees its activations
  }
}

void StageRunner::LocalStage::hand_on(Waiting& work, std::uint32_t block) {
  for (auto& [leaf, gradient] : work.gradients)
    if (gradient.defined() && is_in(leaf, block)) take(leaf, std::exchange(gradient, {}));
}

void StageRunner::LocalStage::take(std::size_t leaf, at::Tensor gradient) {
  if (recording != nullptr) {
    recording->gradients.emplace_back(leaf, std::move(gradient));
  } else if (kept != nullptr) {
    kept->gradients[leaf] = std::move(gradient);
  } else {
    feed.take(leaf, std::move(gradient));
  }
}

// Also called if the pass was not run. If weights are whole, phases have no uses.
void StageRunner::end_pass(plan::ActionKind pass, int stage, std::uint32_t micro) {
  LocalStage& part = part_of(stage);
  if (part.pins) part.pins->end();
  part.sync->end_pass(passes_before_ + micro, phase_of(pass));
}

void StageRunner::refuse(const std::exception_ptr& error) {
  // Ranks that share a layer cannot go on without this rank.
  if (grid_.layer != nullptr) std::rethrow_exception(error);
  if (vote_ == nullptr) {
    if (!error_) error_ = error;
    return;
  }
  vote_->refuse(describe(tensor::explained(error)));
}

Parcel StageRunner::forward_alone(LocalStage& part, std::uint32_t micro, Parcel in,
                                  const Stage::Enter& around) {
  if (error_) return {.failed = true};
  try {
    if (!is_last(part)) return part.passes.forward(micro, micros_[micro], 0, std::move(in), around);
    (*output_)(micro, part.passes.forward_value(micros_[micro], 0, std::move(in), around));
    return {};
  } catch (...) {
    refuse(std::current_exception());
    return {.failed = true};
  }
}

void StageRunner::forward_only(std::span<const MicroBatch> micros, std::uint32_t passes,
                               const Output& output) {
  const c10::AutoGradMode no_grad(false);
  micros_ = micros;
  loss_ = nullptr;
  vote_ = nullptr;
  output_ = &output;
  error_ = nullptr;
  run(plan_.forward_only(passes), micros.size(), passes, "evaluate");
  if (error_) std::rethrow_exception(error_);
}

// Broadcasts the layouts first.
models::Value StageRunner::tell_all(models::Value value) const {
  if (grid_.pipeline == nullptr) return value;
  Parcel parcel{.counts = {value.size()}};
  for (const at::Tensor& tensor : value) {
    parcel.layouts.push_back(layout_of(tensor, false));
    parcel.tensors.push_back(fitted(tensor, parcel.layouts.back(), device_));
  }
  std::vector<std::int64_t> words = words_of(parcel);
  std::vector<std::int64_t> size{static_cast<std::int64_t>(words.size())};
  const int root = plan_.last_rank();
  grid_.pipeline->broadcast(Buffer::of(std::span(size)), root, {.label = "value"}).wait();
  words.resize(static_cast<std::size_t>(size[0]));
  grid_.pipeline->broadcast(Buffer::of(std::span(words)), root, {.label = "value"}).wait();
  if (grid_.last == nullptr) {
    parcel = parcel_of(words);
    for (const TensorLayout& layout : parcel.layouts)
      parcel.tensors.push_back(layout.allocate(device_));
  }
  for (const at::Tensor& tensor : parcel.tensors)
    grid_.pipeline->broadcast(tensor::bytes_of(tensor), root, {.label = "value"}).wait();
  return parcel.tensors;
}

void StageRunner::tell_all(std::span<double> values) const {
  if (grid_.pipeline != nullptr)
    grid_.pipeline->broadcast(Buffer::of(values), plan_.last_rank(), {.label = "loss"}).wait();
}

}  // namespace trireme::inline v0::parallel
