// Passes that are recorded once and replayed give the bits of passes that are run, dropout included.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <string>

#include "tests/devices/device_training.h"
#include "tests/devices/emulated_kernels.h"
#include "trireme/base/error.h"
#include "trireme/models/module_block.h"
#include "trireme/pipeline/pass_graphs.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/devices/device_graph.h"
#include "trireme/testing/emulated_device/test_device.h"

namespace trireme::devices {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Graphs : public ::testing::Test {
 protected:
  void SetUp() override { testing::register_emulated_device({.devices = 4}); }

  static Training recorded(Training training) {
    training.on_device = true;
    training.options.graphs = true;
    return training;
  }
  /// The error of a training with these options.
  static std::string refusal(const std::string& name, Training training) {
    try {
      train(task(name), training);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "it trained";
  }
};

TEST_F(Graphs, ModelsTrainAsOnTheCpu) {
  for (const char* name : {"mlp", "gpt", "bert", "resnet"}) {
    for (const char* precision : {"fp64", "fp32", "bf16", "fp16"}) {
      SCOPED_TRACE(std::string(name) + " " + precision);
      const Training training{
          .options = {.precision = precision, .clip = 0.5, .noise_scale = true}};
      EXPECT_TRUE(train(task(name), recorded(training)) == train(task(name), training));
    }
  }
}

TEST_F(Graphs, KernelsOfGpusAreReplayed) {
  const EmulatedKernels kernels;
  for (const char* precision : {"fp32", "bf16"}) {
    const Training training{.options = {.precision = precision, .clip = 0.5}};
    EXPECT_TRUE(train(task("gpt"), recorded(training)) == train(task("gpt"), training))
        << precision;
  }
}

TEST_F(Graphs, RanksTrainAsOne) {
  const Training alone{.options = {.clip = 0.5, .recompute = "full"}};
  const Outcome one = train(task("gpt"), alone);
  for (const char* sync : {"plain", "zero1", "zero2"}) {
    for (const int ranks : {1, 2, 4}) {
      SCOPED_TRACE(std::string(sync) + " on " + std::to_string(ranks));
      Training training = recorded(alone);
      training.ranks = ranks;
      training.options.sync = sync;
      testing::reseed(static_cast<std::uint64_t>(ranks));
      EXPECT_TRUE(train(task("gpt"), training) == one);
    }
  }
}

TEST_F(Graphs, CopiesTrainAsOnTheCpu) {
  for (const char* sync : {"local_sgd", "gossip"}) {
    SCOPED_TRACE(sync);
    const Training training{.ranks = 3, .options = {.sync = sync, .local = {.steps = 2}}};
    EXPECT_TRUE(train(task("gpt"), recorded(training)) == train(task("gpt"), training));
  }
}

// The last micro-batch is smaller, as at the end of an epoch, and comes again.
TEST_F(Graphs, EachFormOfMicroBatchHasItsOwn) {
  Task uneven = task("gpt");
  uneven.micro_batch = [](std::int64_t step, std::uint32_t index) {
    MicroBatch micro = task("gpt").micro_batch(step, index);
    if (index < 5) return micro;
    micro.count /= 2;
    for (auto& [name, field] : micro.fields) field = field.narrow(0, 0, 1).contiguous();
    return micro;
  };
  const Training training{.ranks = 2, .steps = 5};
  EXPECT_TRUE(train(uneven, recorded(training)) == train(uneven, training));
}

// Masked text: how many tokens count differs, sizes do not.
TEST_F(Graphs, OneServesEveryCount) {
  Task masked = task("gpt");
  masked.micro_batch = [](std::int64_t step, std::uint32_t index) {
    MicroBatch micro = task("gpt").micro_batch(step, index);
    micro.count -= index;
    return micro;
  };
  const Training training{.ranks = 2, .options = {.clip = 0.5}};
  EXPECT_TRUE(train(masked, recorded(training)) == train(masked, training));
}

TEST_F(Graphs, TheirStreamFollowsWhatWasBeforeAndIsFollowed) {
  const at::Device device = tensor::at_device({DeviceKind::Other, 0});
  const testing::CollectedRaces races;
  const at::Tensor before = at::ones({4}, at::TensorOptions(device));
  at::Tensor during;
  {
    const tensor::RecordableStream stream(device);
    during = before + 1;
  }
  EXPECT_EQ((during + 1).sum().item<float>(), 12);
  EXPECT_TRUE(races.all().empty()) << races.all().front().sentence;
}

TEST_F(Graphs, AreReplayed) {
  testing::reset_emulated_stats();
  Training training{.steps = 1, .total = 4, .on_device = true};
  train(task("gpt"), training);
  const std::uint64_t before = testing::emulated_stats().copies_to_device;
  testing::reset_emulated_stats();
  train(task("gpt"), recorded(training));
  // The masks' numbers, of the three micro-batches that are replayed.
  EXPECT_EQ(testing::emulated_stats().copies_to_device, before + 3);
}

TEST_F(Graphs, AWaitThatIsLeftOutIsNoticed) {
  const Training training = recorded({.ranks = 2, .steps = 2, .options = {.sync = "zero2"}});
  const WaitsLeftOut left_out = leave_waits_out(task("gpt"), training, 10);
  EXPECT_GT(left_out.noticed, 0) << "of " << left_out.tried;
}

TEST_F(Graphs, APassThatWaitsForTheDeviceIsRefused) {
  Task waits = task("mlp");
  waits.loss = [](const models::Value& output, const MicroBatch& micro) {
    const at::Tensor loss = task("mlp").loss(output, micro);
    return loss.item<double>() > 1e9 ? loss * 2 : loss;
  };
  EXPECT_THAT(refusal("mlp", recorded({})), HasSubstr("it trained"));
  try {
    train(waits, recorded({.ranks = 2}));
    ADD_FAILURE() << "the step was taken";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cannot be recorded as a graph"),
                                    HasSubstr("the host waits for"), HasSubstr("train.graphs")));
  }
}

// It has its own exit code and advice, also while a pass is recorded.
TEST_F(Graphs, WantOfMemoryIsNotBlamedOnTheModel) {
  const at::Device device("emulated:0");
  const tensor::RecordableStream stream(device);
  parallel::PassGraphs graphs(device);
  const MicroBatch micro{.fields = {{"features", at::ones({4}, device)}}};
  const auto passes = [&](const MicroBatch& held) -> parallel::PassGraphs::Result {
    return {.loss = held.field("features").sum(),
            .gradients = {{0, at::empty({std::int64_t{1} << 31}, device)}}};
  };
  EXPECT_EQ(graphs.run(micro, 0, 1, passes), nullptr) << "the first one runs as usual";
  EXPECT_THROW(graphs.run(micro, 1, 1, passes), c10::OutOfMemoryError);
}

TEST_F(Graphs, ABlockThatDrawsFromLibTorchsGeneratorIsNamed) {
  Task draws = task("mlp");
  draws.model = [](const std::string&) {
    models::Blocks blocks;
    blocks.add("first", {"features"}, [] { return torch::nn::Linear(12, 5); });
    blocks.add("drop", [] { return torch::nn::Dropout(0.4); });
    return blocks;
  };
  try {
    train(draws, recorded({}));
    ADD_FAILURE() << "the step was taken";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("block \"drop\" draws from LibTorch's default"),
                                    HasSubstr("train.graphs")));
  }
}

TEST_F(Graphs, WhatCannotBeRecordedIsRefusedAtTheStart) {
  const auto with = [](StrategyOptions options, int ranks = 1) {
    return refusal("gpt", recorded({.ranks = ranks, .options = options}));
  };
  EXPECT_THAT(with({.sync = "zero3"}, 2),
              HasSubstr("train.graphs = true cannot be combined with parallel.sync"));
  EXPECT_THAT(with({.pipeline = 2}, 2), HasSubstr("a model that is cut over ranks"));
  EXPECT_THAT(with({.tensor = 2}, 2), HasSubstr("a model that is cut over ranks"));
  EXPECT_THAT(with({.offload_activations = "host"}), HasSubstr("memory.offload_activations"));
  EXPECT_THAT(with({.lanes = 2}), HasSubstr("train.lanes = 2"));
  EXPECT_THAT(refusal("gpt", {.options = {.graphs = true}}), HasSubstr("the CPU has no graphs"));
}

}  // namespace
}  // namespace trireme::devices
