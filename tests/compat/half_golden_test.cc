// Training in fp16 against PyTorch's autocast(float16) with a GradScaler on the CPU
// (golden/gpt_fp16.safetensors, written by make_half_golden.py). Different intermediate values are
// rounded to fp16, so losses agree within a tolerance: 50 of them within 1 %, the first gradient's
// norm within 0.5 %.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "trireme/base/error.h"
#include "trireme/format/safetensors.h"
#include "trireme/models/models.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/determinism.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::half_golden_test {
namespace {

constexpr std::int64_t kSteps = 50, kSequences = 3, kBlock = 10, kVocab = 24;

// As tokens_of() in make_gpt_golden.py.
MicroBatch tokens_of(std::int64_t step) {
  at::Tensor tokens = at::empty({kSequences, kBlock + 1}, at::kLong);
  auto rows = tokens.accessor<std::int64_t, 2>();
  for (std::int64_t s = 0; s < kSequences; ++s)
    for (std::int64_t t = 0; t <= kBlock; ++t)
      rows[s][t] = (7 * (step + s) + (s + 2) * t + t * t / 3) % kVocab;
  return {.count = kSequences * kBlock,
          .fields = {{"tokens", tokens.narrow(1, 0, kBlock).contiguous()},
                     {"targets", tokens.narrow(1, 1, kBlock).contiguous()}}};
}

// The golden file of the tree, or one that the installed PyTorch has just written.
const format::SafetensorsFile& golden() {
  static const format::SafetensorsFile file([] {
    const char* fresh = std::getenv("TRIREME_FRESH_GOLDEN");
    return std::string(fresh != nullptr ? fresh : TRIREME_GOLDEN) + "/gpt_fp16.safetensors";
  }());
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

models::Blocks golden_gpt() {
  const models::Blocks model = models::make_gpt({.layers = 2,
                                                 .heads = 2,
                                                 .width = 16,
                                                 .block = kBlock,
                                                 .vocab = kVocab,
                                                 .bias = true,
                                                 .precision = "fp16"});
  models::Blocks filled;
  for (models::BlockSpec spec : model.specs()) {
    spec.make = [make = spec.make, block = spec.name] {
      auto made = make();
      for (const models::NamedTensor& parameter : made->parameters()) {
        const std::string name = block + "." + parameter.name;
        parameter.tensor.detach().copy_(
            golden_tensor("initial/" + (name == "head.weight" ? "embed.weight" : name)));
      }
      return made;
    };
    filled.add_block(std::move(spec));
  }
  for (const models::Tie& tie : model.ties()) filled.tie(tie.alias, tie.owner);
  return filled;
}

std::vector<StepResult> train(double initial_scale, std::int64_t steps) {
  tensor::set_up_process({.kernel_threads = 1});
  std::vector<StepResult> results;
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    Strategy strategy(
        {.world = rank.world.get()}, golden_gpt(),
        {.precision = "fp16",
         .loss_scale = LossScaleOptions{.initial = initial_scale},
         .clip = 1e9},
        optim::make_optimizer(
            AdamW{.learning_rate = 3e-3, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1}));
    for (std::int64_t step = 0; step < steps; ++step) {
      Batch batch{.total = 1, .global_count = kSequences * kBlock, .step = step};
      batch.micro.push_back(tokens_of(step));
      results.push_back(strategy.step(batch, token_loss()));
    }
  });
  return results;
}

TEST(HalfGolden, FiftyStepsAreNearPyTorchs) {
  const std::vector<StepResult> ours = train(65536, kSteps);
  const at::Tensor losses = golden_tensor("losses"), wide = golden_tensor("losses_fp32");
  const at::Tensor scales = golden_tensor("scales");
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const StepResult& own = ours[static_cast<std::size_t>(step)];
    const double wanted = losses[step].item<double>();
    EXPECT_NEAR(own.loss, wanted, 0.01 * wanted) << "step " << step;
    EXPECT_NEAR(own.loss, wide[step].item<double>(), 0.01 * wanted) << "fp32, step " << step;
    EXPECT_EQ(own.loss_scale, scales[step].item<double>()) << "step " << step;
  }
  const double norm = golden_tensor("norm").item<double>();
  EXPECT_NEAR(*ours[0].gradient_norm, norm, 0.005 * norm);
}

// The scale falls from 2^32 until gradients fit. Ours is the mean loss's but for the power of two
// next to the count (32 for 30 tokens), and different values are rounded: within a factor of 4.
TEST(HalfGolden, FindsAScaleNearPyTorchs) {
  const std::vector<StepResult> ours = train(0x1p32, 32);
  const double found = *ours.back().loss_scale, wanted = golden_tensor("found").item<double>();
  EXPECT_TRUE(ours.back().skipped.empty());
  EXPECT_EQ(ours.back().overflows, std::lround(std::log2(0x1p32 / found)));
  EXPECT_LE(std::abs(std::log2(found / wanted)), 2) << found << ", PyTorch's " << wanted;
}

}  // namespace
}  // namespace trireme::half_golden_test
