// Memory saved by recomputation and by a file for activations, counted by LibTorch's allocator,
// compared with the plan.
#include <ATen/Functions.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>

#include "trireme/memory/activation_store.h"
#include "trireme/memory/recompute.h"
#include "trireme/models/figures.h"
#include "trireme/placement/stage.h"
#include "trireme/strategy/strategy.h"
#include "trireme/tensor/determinism.h"

namespace trireme::recompute_memory_test {
namespace {

class LiveBytes final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
    now += size;
    const std::int64_t all = now + (file ? file->bytes_fetched() : 0);
    if (all > peak) peak = all;
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::atomic<std::int64_t> now = 0, peak = 0;
  std::shared_ptr<memory::ActivationFile> file;  // its pages are not the allocator's
};

struct Measured {
  double kept = 0, peak = 0, predicted = 0;  // after forward; in the whole step; by the plan
};

struct Variant {
  int experts = 0;
  std::string activation = "gelu", precision = "fp32";
};

Measured measure(const std::string& policy,
                 const std::shared_ptr<memory::ActivationFile>& file = nullptr,
                 const Variant& variant = {}) {
  tensor::set_up_process({});
  const models::GptConfig config{.layers = 6,
                                 .heads = 6,
                                 .width = 192,
                                 .block = 128,
                                 .vocab = 256,
                                 .activation = variant.activation,
                                 .experts = variant.experts,
                                 .capacity_factor = 4,
                                 .dropout = 0.1,
                                 .precision = variant.precision};
  parallel::Stage stage(models::make_gpt(config), 1);
  stage.train(true);
  stage.recompute(memory::parse_recompute(policy));
  stage.offload(file);
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
  step(nullptr);  // allocates gradients and the kernels' workspaces
  const auto live = std::make_shared<LiveBytes>();
  live->file = file;
  const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, live);
  Measured measured = step(live.get());
  const memory::ActivationCosts costs =
      memory::costs_of(models::block_activations(config, 4), memory::parse_recompute(policy));
  measured.predicted = static_cast<double>(file ? costs.peak_offloaded : costs.peak);
  std::printf("%-10s %s kept %5.1f MB, at most %5.1f MB, planned %5.1f MB\n", policy.c_str(),
              file ? "in a file," : "", measured.kept / 1e6, measured.peak / 1e6,
              measured.predicted / 1e6);
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
    // Gradients and temporaries of the running block add to the activations.
    EXPECT_GT(one.peak, 0.8 * one.predicted);
    EXPECT_LT(one.peak, 1.5 * one.predicted);
  }
}

TEST(RecomputeMemory, OfExpertsIsWhatThePlanSays) {
  for (const char* precision : {"fp32", "bf16"}) {
    const Measured experts = measure("none", nullptr, {.experts = 4, .precision = precision});
    EXPECT_NEAR(experts.kept, experts.predicted, 0.1 * experts.predicted) << precision;
  }
}

TEST(RecomputeMemory, OfGatedMlpsIsWhatThePlanSays) {
  for (const int experts : {0, 4}) {
    const Measured gated = measure("none", nullptr, {.experts = experts, .activation = "swiglu"});
    EXPECT_NEAR(gated.kept, gated.predicted, 0.1 * gated.predicted) << experts;
  }
}

// Two blocks' activations are in memory at a time, one of them being written or fetched.
TEST(RecomputeMemory, AFileSavesWhatThePlanSays) {
  const Measured none = measure("none");
  for (const char* policy : {"none", "every-2"}) {
    const auto file = std::make_shared<memory::ActivationFile>(::testing::TempDir());
    const Measured offloaded = measure(policy, file);
    EXPECT_LT(offloaded.predicted, 0.5 * none.predicted);
    EXPECT_LT(offloaded.peak, 0.6 * none.peak);
    EXPECT_GT(offloaded.peak, 0.8 * offloaded.predicted);
    EXPECT_LT(offloaded.peak, 1.5 * offloaded.predicted);
    while (file->bytes_waiting() + file->bytes_fetched() > 0) std::this_thread::yield();
  }
}

}  // namespace
}  // namespace trireme::recompute_memory_test
