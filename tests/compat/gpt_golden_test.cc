// The GPT against PyTorch's own result (golden/gpt.safetensors, written by make_gpt_golden.py):
// fp64, 50 AdamW steps within 1e-10; fp32 and bf16 gradients of the first step.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "trireme/base/error.h"
#include "trireme/format/safetensors.h"
#include "trireme/models/models.h"
#include "trireme/optim/optimizer.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/functions/functions.h"

namespace trireme {
namespace {

constexpr std::int64_t kSteps = 50, kSequences = 3, kBlock = 10, kVocab = 24;

at::Tensor tokens_of(std::int64_t step) {
  at::Tensor tokens = at::empty({kSequences, kBlock + 1}, at::kLong);
  auto rows = tokens.accessor<std::int64_t, 2>();
  for (std::int64_t s = 0; s < kSequences; ++s) {
    for (std::int64_t t = 0; t <= kBlock; ++t) {
      rows[s][t] = (7 * (step + s) + (s + 2) * t + t * t / 3) % kVocab;
    }
  }
  return tokens;
}

const format::SafetensorsFile& golden() {
  static const format::SafetensorsFile file(TRIREME_GOLDEN "/gpt.safetensors");
  return file;
}

at::Tensor golden_tensor(const std::string& name) {
  const format::TensorView* view = golden().find(name);
  if (view == nullptr) throw ConfigError("the golden file has no " + name);
  Buffer buffer{.data = const_cast<std::byte*>(view->bytes.data()),
                .count = view->bytes.size() / size_of(view->dtype),
                .dtype = view->dtype};
  return tensor::view_of(buffer, view->shape).clone();
}

double relative(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).norm() / b.to(at::kDouble).norm()).item<double>();
}

// One process's GPT with the golden weights. Gradients are summed over the tied embedding's uses.
struct Model {
  std::vector<std::shared_ptr<models::Block>> blocks;
  std::map<std::string, models::NamedTensor> parameters;
  explicit Model(const std::string& precision) {
    const auto net = models::make_gpt({.layers = 2,
                                       .heads = 2,
                                       .width = 16,
                                       .block = kBlock,
                                       .vocab = kVocab,
                                       .bias = true,
                                       .precision = precision});
    for (const auto& spec : net.specs()) {
      blocks.push_back(spec.make());
      for (auto& parameter : blocks.back()->parameters()) {
        parameters[spec.name + "." + parameter.name] = parameter;
      }
    }
    for (auto& [name, parameter] : parameters) {
      if (name != "head.weight") parameter.tensor.detach().copy_(golden_tensor("initial/" + name));
    }
    parameters.at("head.weight").tensor.set_data(parameters.at("embed.weight").tensor.detach());
  }
  /// The mean loss of one step; leaves the gradients in the leaves.
  double step(std::int64_t step) {
    const at::Tensor tokens = tokens_of(step);
    models::Value value = {tokens.narrow(1, 0, kBlock).contiguous()};
    for (auto& block : blocks) value = block->forward(std::vector<models::Value>{value});
    const at::Tensor loss =
        tensor::cross_entropy_sum(value[0], tokens.narrow(1, 1, kBlock).contiguous());
    loss.backward();
    return loss.item<double>() / static_cast<double>(kSequences * kBlock);
  }
  at::Tensor gradient(const std::string& name) {
    at::Tensor sum = parameters.at(name).tensor.grad().to(at::kDouble);
    if (name == "embed.weight") {
      sum = sum + parameters.at("head.weight").tensor.grad().to(at::kDouble);
    }
    return sum / static_cast<double>(kSequences * kBlock);
  }
};

class GptGolden : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tensor::set_up_process({.kernel_threads = 1}); }
};

TEST_F(GptGolden, FiftyStepsInFp64ArePyTorchs) {
  Model model("fp64");
  std::vector<optim::OwnedSlice> slices;
  std::vector<optim::ParameterInfo> infos;
  std::map<std::string, at::Tensor> gradients;
  for (auto& [name, parameter] : model.parameters) {
    if (name == "head.weight") continue;
    gradients[name] = at::zeros_like(parameter.tensor);
    infos.push_back({name, parameter.tensor.sizes().vec()});
    slices.push_back({.parameter = static_cast<std::uint32_t>(slices.size()),
                      .name = name,
                      .end = parameter.tensor.numel(),
                      .master_dtype = DType::F64,
                      .weight = parameter.tensor.data_ptr(),
                      .gradient = gradients[name].data_ptr(),
                      .decay = parameter.decay});
  }
  auto optimizer = optim::make_optimizer(
      AdamW{.learning_rate = 3e-3, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1});
  optimizer->attach(slices, infos);
  const at::Tensor losses = golden_tensor("losses");
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const double wanted = losses[step].item<double>();
    ASSERT_NEAR(model.step(step), wanted, 1e-10 * wanted) << "step " << step;
    for (auto& [name, gradient] : gradients) gradient.copy_(model.gradient(name));
    for (auto& [name, parameter] : model.parameters) parameter.tensor.mutable_grad().reset();
    optimizer->apply(3e-3, 1.0);
  }
  for (auto& [name, gradient] : gradients) {
    EXPECT_LT(relative(model.parameters.at(name).tensor, golden_tensor("final/" + name)), 1e-10)
        << name;
  }
}

TEST_F(GptGolden, FirstGradientsInFp32AndBf16) {
  for (auto [precision, tolerance] : {std::pair{"fp32", 1e-5}, {"bf16", 3e-2}}) {
    Model model(precision);
    const double wanted = golden_tensor("losses")[0].item<double>();
    EXPECT_NEAR(model.step(0), wanted, tolerance * wanted) << precision;
    for (auto& [name, parameter] : model.parameters) {
      if (name == "head.weight") continue;
      EXPECT_LT(relative(model.gradient(name), golden_tensor("gradient/" + name)), tolerance)
          << precision << " " << name;
    }
  }
}

}  // namespace
}  // namespace trireme
