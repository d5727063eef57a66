// A loop of one's own, whose module and torch optimizer are on a device.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/AutogradState.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/kernel/assignment.h"
#include "trireme/layers/sync_batch_norm.h"
#include "trireme/memory/recompute.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/flat_math.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/emulated_device/emulated_device.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::devices {
namespace {

constexpr int kBatches = 3;
constexpr std::uint32_t kTotal = 4;  // micro-batches of a batch, each of one sample

class Plan final : public InputPlan {
 public:
  Plan(const kernel::Assignment& assignment, int rank) {
    for (std::int64_t batch = 0; batch < kBatches; ++batch)
      for (const std::uint32_t index : leaves_of(assignment, kTotal, rank)) {
        MicroStep step{.index = index, .total = kTotal, .samples = 1};
        step.last_of_batch = index == leaves_of(assignment, kTotal, rank).back();
        step.global_samples = kTotal;
        step.batch_number = batch;
        step.last_of_epoch = batch + 1 == kBatches;
        steps_.push_back(step);
      }
  }
  std::optional<MicroStep> peek() override {
    return next_ < steps_.size() ? std::optional(steps_[next_]) : std::nullopt;
  }
  void consume() override { ++next_; }
  const std::vector<MicroStep>& steps() const { return steps_; }

 private:
  std::vector<MicroStep> steps_;
  std::size_t next_ = 0;
};

std::string train(int ranks, const std::string& sync, bool on_device, bool recomputed = false) {
  const tensor::LibTorchOnCpu as_devices;
  std::vector<std::string> hashes(static_cast<std::size_t>(ranks));
  testing::run_ranks(ranks, [&](testing::RankContext& rank) {
    const kernel::Assignment shares =
        sync == "zero2" ? kernel::Assignment{1, ranks} : kernel::contiguous(ranks);
    const auto plan = std::make_shared<Plan>(shares, rank.rank);
    parallel::StrategyContext env{.world = rank.world.get()};
    env.input->set_plan(plan);
    const at::Device device =
        on_device ? tensor::at_device({DeviceKind::Other, rank.rank}) : at::Device(at::kCPU);
    at::manual_seed(static_cast<std::uint64_t>(3 + rank.rank));
    torch::nn::Sequential net(torch::nn::Linear(6, 16), torch::nn::GELU(), torch::nn::Dropout(0.3),
                              torch::nn::Linear(16, 3));
    net->to(device);
    torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-2));
    DataParallel parallel(env, *net, adamw, {.sync = sync, .clip = 0.5, .bucket_bytes = 256});
    for (const MicroStep& step : plan->steps()) {
      at::Tensor x = at::empty({5, 6}, at::kFloat);
      tensor::fill_normal(
          x, 11, std::to_string(step.batch_number) + "/" + std::to_string(step.index), 0, 1);
      x = x.to(device);
      const auto forward = [&](const at::Tensor& in) { return net->forward(in); };
      const at::Tensor y = recomputed ? memory::recompute(forward, x) : forward(x);
      (y - x.narrow(1, 0, 3).abs()).pow(2).mean().backward();
      parallel.step();
    }
    EXPECT_EQ(parallel.steps(), kBatches);
    hashes[static_cast<std::size_t>(rank.rank)] = parallel.weights_hash();
  });
  for (const std::string& hash : hashes) EXPECT_EQ(hash, hashes.front());
  return hashes.front();
}

// The tests' other programs are reproducible.
class Forms {
 public:
  ~Forms() {
    at::globalContext().setDeterministicAlgorithms(was_, /*warn_only=*/false);
    at::globalContext().setBenchmarkCuDNN(false);
  }

 private:
  const bool was_ = at::globalContext().deterministicAlgorithms();
};

TEST(DataParallelOnDevice, TakesTheFastestFormsWhereTheJobIsNotReproducible) {
  testing::register_emulated_device({.devices = 4});
  const Forms forms;
  testing::run_ranks(1, [](testing::RankContext& rank) {
    torch::nn::Linear net(6, 3);
    net->to(tensor::at_device({DeviceKind::Other, rank.rank}));
    torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-2));
    const DataParallel parallel({.world = rank.world.get(), .reproducible = false}, *net, adamw,
                                {.kernel_threads = 1});
    EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
    EXPECT_TRUE(at::globalContext().benchmarkCuDNN());
  });
}

// Output, the input's gradient and the running statistics of two steps.
std::vector<at::Tensor> sync_batch_norm(comm::Communicator& world, at::Device device) {
  const tensor::LibTorchOnCpu as_devices;
  SyncBatchNorm norm(world, 3);  // made before its tensors go to the device, as in a module
  norm.to(device);
  std::vector<at::Tensor> results;
  for (int step = 0; step < 2; ++step) {
    at::Tensor x = at::empty({4, 3, 5}, at::kFloat);
    tensor::fill_normal(x, 7, std::to_string(world.rank()) + "/" + std::to_string(step), 1, 2);
    x = x.to(device).requires_grad_(true);
    const at::Tensor y = norm.forward(x);
    y.square().mul(y).sum().backward();
    for (const at::Tensor& one : {y, x.grad()}) results.push_back(one.detach().to(at::kCPU));
  }
  for (const auto& buffer : norm.buffers()) results.push_back(buffer.to(at::kCPU));
  results.push_back(norm.weight.grad().to(at::kCPU));
  return results;
}

TEST(DataParallelOnDevice, BatchNormOfAllRanksIsTheCpus) {
  testing::register_emulated_device({.devices = 4});
  testing::run_ranks(3, [](testing::RankContext& rank) {
    // LibTorch's thread of a device would run the ranks' backward passes one after the other.
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    const at::Device device = tensor::at_device({DeviceKind::Other, rank.rank});
    const auto wanted = sync_batch_norm(*rank.world, at::kCPU);
    const auto got = sync_batch_norm(*rank.world, device);
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(got[i].equal(wanted[i])) << i;
  });
}

// Dropout of torch::nn draws from the device's generator, in the second run as in the first.
TEST(DataParallelOnDevice, RecomputationChangesNoBit) {
  testing::register_emulated_device({.devices = 4});
  const std::string kept = train(1, "plain", true);
  EXPECT_EQ(train(1, "plain", true, /*recomputed=*/true), kept);
  EXPECT_EQ(train(2, "zero1", true, /*recomputed=*/true), kept);
}

TEST(DataParallelOnDevice, GivesTheCpusWeightsOnAnyNumberOfRanks) {
  testing::register_emulated_device({.devices = 4});
  const std::string cpu = train(1, "plain", false);
  for (const char* sync : {"plain", "zero1", "zero2"}) {
    for (const int ranks : {1, 2, 4}) {
      SCOPED_TRACE(std::string(sync) + " on " + std::to_string(ranks));
      EXPECT_EQ(train(ranks, sync, true), cpu);
    }
  }
}

}  // namespace
}  // namespace trireme::devices
