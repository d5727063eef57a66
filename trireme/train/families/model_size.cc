#include "trireme/train/families/model_size.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/joined.h"
#include "trireme/base/shape_text.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/models/experts.h"
#include "trireme/models/layer_factory.h"
#include "trireme/strategy/strategy.h"
#include "trireme/tensor/random.h"

namespace trireme::inline v0::train {
namespace {

// Bytes that tensors of this thread have allocated and not freed since it was installed.
class LiveBytes final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
    bytes_ += size;
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t now() const { return bytes_; }

 private:
  std::atomic<std::int64_t> bytes_{0};
};

// Restores the default generator when it is destroyed.
class KeptGenerator {
 public:
  KeptGenerator()
      : generator_(at::detail::getDefaultCPUGenerator()), state_(generator_.get_state()) {}
  ~KeptGenerator() { generator_.set_state(state_); }
  KeptGenerator(const KeptGenerator&) = delete;

 private:
  at::Generator generator_;
  const at::Tensor state_;
};

// A LayerFactory that makes whole layers, as local_layers() does, and records in `shape` which
// parts of them ranks could share. Sequences have `positions`.
class RecordedLayers final : public models::LayerFactory {
 public:
  RecordedLayers(parallel::ModelShape& shape, std::int64_t positions)
      : shape_(shape), positions_(positions) {}

  std::unique_ptr<models::Linear> linear(const models::LayerContext& context,
                                         const models::LinearSpec& spec) const override {
    const std::string name = context.block + "." + spec.name + " of ";
    if (spec.cut == models::Cut::Columns) {
      const std::int64_t columns = spec.out / spec.parts;
      shape_.shares.push_back({name + std::to_string(columns) + " columns", columns});
    }
    if (spec.cut == models::Cut::Rows)
      shape_.shares.push_back({name + std::to_string(spec.in) + " rows", spec.in});
    return whole_->linear(context, spec);
  }
  std::unique_ptr<models::Vocabulary> vocabulary(
      const models::LayerContext& context, const models::VocabularySpec& spec) const override {
    shape_.vocabulary = spec.rows;
    return whole_->vocabulary(context, spec);
  }
  std::int64_t heads(std::int64_t heads) const override {
    shape_.shares.push_back({std::to_string(heads) + " attention heads", heads});
    return whole_->heads(heads);
  }
  at::Tensor attention(const at::Tensor& qkv, std::int64_t heads, bool causal) const override {
    shape_.positions = positions_;
    return whole_->attention(qkv, heads, causal);
  }
  std::unique_ptr<models::Experts> experts(const models::LayerContext& context,
                                           const models::ExpertsSpec& spec) const override {
    shape_.experts = spec.experts;
    return models::make_experts(*this, context, spec);
  }
  at::Tensor whole(const at::Tensor& parameter) const override { return whole_->whole(parameter); }
  at::Tensor dropout(const at::Tensor& x, double p) const override { return whole_->dropout(x, p); }
  at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) const override {
    return whole_->cross_entropy_sum(logits, targets);
  }

 private:
  parallel::ModelShape& shape_;
  const std::int64_t positions_;
  const std::shared_ptr<const models::LayerFactory> whole_ = models::local_layers();
};

// A block's outputs as inputs of the next block, detached from their graph.
models::Value cut_off(const models::Value& value) {
  models::Value cut;
  for (const at::Tensor& tensor : value) {
    const at::Tensor leaf = tensor.detach();
    cut.push_back(leaf.is_floating_point() ? leaf.set_requires_grad(true) : leaf);
  }
  return cut;
}

// Time of a forward pass. Not for a block's first pass, which also allocates and sets up kernels.
double forward_seconds(models::Block& block, const std::vector<models::Value>& inputs,
                       const Waiter& clock) {
  const c10::AutoGradMode no_gradients(false);
  const TimePoint begin = clock.now();
  block.forward(inputs);
  return to_seconds(clock.now() - begin);
}

// Turns an error of LibTorch into a ConfigError with the first line of its message.
template <class Call>
auto refused_by_name(const std::string& whose, const models::Value& inputs, Call call)
    -> decltype(call()) {
  try {
    return call();
  } catch (const c10::Error& error) {
    std::string why = error.what_without_backtrace();
    why = why.substr(0, why.find('\n'));
    throw ConfigError(whose + " cannot take " + describe_shapes(inputs) + ": " + why,
                      {.operation = "model", .advice = "Make the shapes and types fit."});
  }
}

models::Value tensors_of(const std::vector<models::Value>& values) {
  models::Value all;
  for (const models::Value& value : values) all.insert(all.end(), value.begin(), value.end());
  return all;
}

// Bytes that the loss keeps for backward.
std::int64_t kept_by(const Loss& loss, const models::Value& output, const MicroBatch& micro,
                     const LiveBytes& live) {
  const std::int64_t held = live.now();
  const at::Tensor sum = refused_by_name("the loss", output, [&] { return loss(output, micro); });
  if (sum.numel() != 1 || !sum.requires_grad())
    throw ConfigError("the loss has the shape " + describe_shapes({sum}) +
                          (sum.requires_grad() ? "" : " and does not depend on any parameter"),
                      {.operation = "model",
                       .advice = "It must be one number, the sum over the micro-batch, under "
                                 "autograd."});
  return live.now() - held;
}

// Positions of a sequence: the second dim of "tokens"; 1 if samples are not sequences.
std::int64_t positions_of(const MicroBatch& micro) {
  for (const auto& [name, field] : micro.fields)
    if (name == "tokens" && field.dim() > 1) return field.size(1);
  return 1;
}

}  // namespace

std::string describe_shapes(const models::Value& value) {
  if (value.empty()) return "nothing";
  return joined(value, [](const at::Tensor& tensor) { return shape_text(tensor.sizes()); });
}

ModelFigures measure_size(const models::Blocks& model, const MicroBatch& micro, const Loss& loss) {
  if (model.specs().empty())
    throw ConfigError("the model has no blocks", {.operation = "model", .advice = "Add some."});
  check_reads(model, micro.fields);
  const KeptGenerator generator;
  const c10::AutoGradMode gradients(true);
  const tensor::StreamScope streams(tensor::StreamKey{});
  parallel::ModelShape shape;
  const models::LayersScope recorded(std::make_shared<RecordedLayers>(shape, positions_of(micro)));
  const auto live = std::make_shared<LiveBytes>();
  const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, live);
  std::map<std::string, models::Value> values;
  for (const auto& [name, field] : micro.fields) values[name] = {field};
  ParameterCount count(model);
  std::vector<models::BlockActivations> activations;
  models::Value last;
  const auto clock = RealWaiter::make();
  for (const models::BlockSpec& spec : model.specs()) {
    const std::shared_ptr<models::Block> built = spec.make();
    built->train(true);
    count.add(spec.name, built);
    std::vector<models::Value> inputs;
    for (const std::string& name : spec.reads) inputs.push_back(values.at(name));
    const std::int64_t held = live->now();
    const models::Value output = refused_by_name("block \"" + spec.name + "\"", tensors_of(inputs),
                                                 [&] { return built->forward(inputs); });
    models::BlockActivations& own = activations.emplace_back();
    own.kept = live->now() - held;
    for (const models::Value& input : inputs)
      for (const at::Tensor& tensor : input)
        own.inputs += static_cast<std::int64_t>(tensor.nbytes());
    own.forward_work = forward_seconds(*built, inputs, *clock);
    values[spec.writes] = last = cut_off(output);
  }
  // Backward of the loss begins at once, so count its bytes with the last block.
  activations.back().kept += kept_by(loss, last, micro, *live);
  ModelFigures figures = count.figures();
  figures.activations = std::move(activations);
  figures.shape = std::move(shape);
  return figures;
}

}  // namespace trireme::inline v0::train
