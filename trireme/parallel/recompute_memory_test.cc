// What recomputation saves, counted by LibTorch's allocator, against what the plan says of it.
#include <ATen/Functions.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "trireme/memory/recompute.h"
#include "trireme/models/gpt.h"
#include "trireme/parallel/pipeline/stage.h"
#include "trireme/parallel/strategy.h"
#include "trireme/tensor/determinism.h"

namespace trireme {
namespace {

class LiveBytes final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
    now += size;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t now = 0, peak = 0;
};

struct Measured {
  double kept = 0, peak = 0, predicted = 0;  // after forward; in the whole step; of the plan
};

Measured measure(const std::string& policy, int experts = 0,
                 const std::string& precision = "fp32") {
  tensor::set_up_process({});
  const models::GptConfig config{.layers = 6,
                                 .heads = 6,
                                 .width = 192,
                                 .block = 128,
                                 .vocab = 256,
                                 .experts = experts,
                                 .capacity_factor = 4,
                                 .dropout = 0.1,
                                 .precision = precision};
  parallel::Stage stage(models::make_gpt(config), 1);
  stage.train(true);
  stage.recompute(memory::parse_recompute(policy));
  const at::Tensor tokens =
      at::zeros({4, config.block}, at::TensorOptions().dtype(at::kLong)).contiguous();
  const MicroBatch micro{.count = 4 * config.block,
                         .fields = {{"tokens", tokens}, {"targets", tokens}}};
  const auto step = [&](LiveBytes* live) {
    Measured measured;
    const at::Tensor loss = token_loss()(stage.forward(micro, 0), micro);
    if (live != nullptr) measured.kept = static_cast<double>(live->now);
    loss.backward();
    if (live != nullptr) measured.peak = static_cast<double>(live->peak);
    return measured;
  };
  step(nullptr);  // gradients are there, kernels have their workspaces
  const auto live = std::make_shared<LiveBytes>();
  const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, live);
  Measured measured = step(live.get());
  measured.predicted = static_cast<double>(memory::peak_activations(
      models::block_activations(config, 4), memory::parse_recompute(policy)));
  std::printf("%-10s kept %5.1f MB, at most %5.1f MB, planned %5.1f MB\n", policy.c_str(),
              measured.kept / 1e6, measured.peak / 1e6, measured.predicted / 1e6);
  return measured;
}

TEST(RecomputeMemory, SavesWhatThePlanSays) {
  const Measured none = measure("none"), full = measure("full"), half = measure("every-2"),
                 selective = measure("selective");
  EXPECT_NEAR(none.kept, none.predicted, 0.1 * none.predicted);
  EXPECT_LT(full.kept, 0.4 * none.kept);
  EXPECT_LT(full.peak, 0.6 * none.peak);
  EXPECT_LT(half.kept, 0.7 * none.kept);
  EXPECT_LT(selective.kept, none.kept);
  for (const Measured& one : {full, half, selective}) {
    // Gradients and temporaries of the block that runs are beside the activations.
    EXPECT_GT(one.peak, 0.8 * one.predicted);
    EXPECT_LT(one.peak, 1.5 * one.predicted);
  }
}

TEST(RecomputeMemory, OfExpertsIsWhatThePlanSays) {
  for (const char* precision : {"fp32", "bf16"}) {
    const Measured experts = measure("none", 4, precision);
    EXPECT_NEAR(experts.kept, experts.predicted, 0.1 * experts.predicted) << precision;
  }
}

}  // namespace
}  // namespace trireme
