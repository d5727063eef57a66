#include "trireme/train/model_size.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <chrono>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/real_waiter.h"
#include "trireme/parallel/strategy.h"
#include "trireme/tensor/random.h"
#include "trireme/train/recorded_layers.h"

namespace trireme {
inline namespace v0 {
namespace train {
namespace {

// Bytes that this thread's tensors have taken and not given back since it was installed.
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

// The default generator as it was, however much the blocks drew.
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

// A block's outputs as the next one's inputs: the graph behind them is let go.
models::Value cut_off(const models::Value& value) {
  models::Value cut;
  for (const at::Tensor& tensor : value) {
    const at::Tensor leaf = tensor.detach();
    cut.push_back(leaf.is_floating_point() ? leaf.set_requires_grad(true) : leaf);
  }
  return cut;
}

// Of a forward pass that is not the block's first, which pays for memory and kernels.
double forward_seconds(models::Block& block, const std::vector<models::Value>& inputs,
                       const Waiter& clock) {
  const c10::AutoGradMode no_gradients(false);
  const TimePoint begin = clock.now();
  block.forward(inputs);
  return std::chrono::duration<double>(clock.now() - begin).count();
}

void check_logits(const models::Value& value, std::int64_t sequences, std::int64_t block) {
  const std::vector<std::int64_t> wanted = {sequences, block, 256};
  if (value.size() == 1 && value[0].sizes() == wanted) return;
  std::string got = value.empty() ? "nothing" : "";
  for (const at::Tensor& tensor : value) {
    got += got.empty() ? "[" : ", [";
    for (std::int64_t dim = 0; dim < tensor.dim(); ++dim)
      got += (dim > 0 ? ", " : "") + std::to_string(tensor.size(dim));
    got += "]";
  }
  throw ConfigError("the model gives " + got + " for " + std::to_string(sequences) +
                        " sequences of " + std::to_string(block) + " bytes",
                    {.operation = "model",
                     .advice = "Its last block must give logits [" + std::to_string(sequences) +
                               ", " + std::to_string(block) + ", 256]: one for each byte value."});
}

}  // namespace

ModelFigures measure_size(const models::Blocks& model, std::int64_t sequences, std::int64_t block) {
  const KeptGenerator generator;
  const c10::AutoGradMode gradients(true);
  const tensor::StreamScope streams(tensor::StreamKey{});
  parallel::ModelShape shape;
  const models::LayersScope recorded(recorded_layers(shape, block));
  const auto live = std::make_shared<LiveBytes>();
  const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, live);
  const at::Tensor zeros = at::zeros({sequences, block}, at::TensorOptions().dtype(at::kLong));
  std::map<std::string, models::Value> values{{"tokens", {zeros}}, {"targets", {zeros}}};
  ParameterCount count(model);
  std::vector<models::BlockActivations> activations;
  models::Value last;
  const auto clock = RealWaiter::make();
  for (const models::BlockSpec& spec : model.specs()) {
    const std::shared_ptr<models::Block> built = spec.make();
    built->train(true);
    count.add(spec.name, *built);
    std::vector<models::Value> inputs;
    for (const std::string& name : spec.reads) {
      const auto found = values.find(name);
      if (found == values.end())
        throw ConfigError("block \"" + spec.name + "\" reads \"" + name + "\", which nothing gives",
                          {.operation = "model", .advice = "Name a block before it, or tokens."});
      inputs.push_back(found->second);
    }
    const std::int64_t held = live->now();
    const models::Value output = built->forward(inputs);
    models::BlockActivations& own = activations.emplace_back();
    own.kept = live->now() - held;
    for (const models::Value& input : inputs)
      for (const at::Tensor& tensor : input)
        own.inputs += static_cast<std::int64_t>(tensor.nbytes());
    own.forward_work = forward_seconds(*built, inputs, *clock);
    values[spec.writes] = last = cut_off(output);
  }
  check_logits(last, sequences, block);
  const std::int64_t held = live->now();
  const at::Tensor loss = token_loss()(last, {.fields = {{"targets", zeros}}});
  ModelFigures figures = count.figures();
  activations.back().kept += live->now() - held;  // runs back at once, as the last block does
  figures.activations = std::move(activations);
  figures.shape = std::move(shape);
  return figures;
}

}  // namespace train
}  // namespace v0
}  // namespace trireme
