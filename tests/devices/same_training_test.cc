// A device gives the CPU's bits, on any number of ranks and in any order of its streams.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <ostream>

#include "tests/devices/device_training.h"
#include "trireme/models/module_block.h"
#include "trireme/models/recommender.h"
#include "trireme/sync/sync_plan.h"
#include "trireme/testing/emulated_device/emulated_device.h"

namespace trireme::devices {

static void PrintTo(const Outcome& outcome, std::ostream* out) {
  *out << outcome.hash.substr(0, 12) << ", losses";
  for (const double loss : outcome.losses) *out << ' ' << loss;
  *out << ", norms";
  for (const double norm : outcome.norms) *out << ' ' << norm;
  *out << ", noise scales";
  for (const double scale : outcome.noise_scales) *out << ' ' << scale;
  *out << ", validation " << outcome.validation;
}

namespace {

class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override { testing::register_emulated_device({.devices = 4}); }

  static void expect_as_on_cpu(const std::string& name, Training training) {
    const Outcome cpu = train(task(name), training);
    training.on_device = true;
    EXPECT_EQ(train(task(name), training), cpu);
  }
};

TEST_F(OnDevice, EveryModelTrainsAsOnTheCpu) {
  for (const Task& task : tasks()) {
    for (const char* precision : {"fp64", "fp32", "bf16", "fp16"}) {
      SCOPED_TRACE(task.name + " " + precision);
      expect_as_on_cpu(task.name,
                       {.options = {.precision = precision, .clip = 0.5, .noise_scale = true}});
    }
  }
}

// torch::nn's dropout draws from the device's generator, which is keyed as the CPU's.
TEST_F(OnDevice, DropoutOfAModuleIsTheCpusOnAnyNumberOfRanks) {
  Task dropout = task("mlp");
  dropout.model = [](const std::string&) {
    models::Blocks blocks;
    blocks.add("first", {"features"}, [] { return torch::nn::Linear(12, 24); });
    blocks.add("drop", [] { return torch::nn::Dropout(0.4); });
    blocks.add("last", [] { return torch::nn::Linear(24, 5); });
    return blocks;
  };
  Training training{.options = {.clip = 0.5}};
  const Outcome cpu = train(dropout, training);
  training.on_device = true;
  for (const int ranks : {1, 2}) {
    for (const char* recompute : {"none", "full"}) {
      SCOPED_TRACE(std::string(recompute) + " on " + std::to_string(ranks));
      training.ranks = ranks;
      training.options.recompute = recompute;
      EXPECT_EQ(train(dropout, training), cpu);
    }
  }
}

TEST_F(OnDevice, TheProductsOfARecommendersRowsAreTheCpus) {
  const models::Blocks model = models::make_dlrm({.numbers = 3, .categories = 4, .width = 8});
  const auto spec = std::find_if(model.specs().begin(), model.specs().end(),
                                 [](const auto& one) { return one.name == "interaction"; });
  const auto products = [&](at::Device device) {
    const at::Tensor values = at::arange(5 * 40, at::kFloat).mul(0.1).sin().to(device);
    return spec->make()
        ->forward(std::vector<models::Value>{{values.narrow(0, 0, 40).view({5, 8})},
                                             {values.narrow(0, 40, 160).view({5, 4, 8})}})
        .at(0)
        .cpu();
  };
  EXPECT_TRUE(at::equal(products({at::kPrivateUse1, 1}), products(at::kCPU)));
}

TEST_F(OnDevice, EveryShardingTrainsAsOneRank) {
  for (const char* name : {"gpt", "resnet"}) {
    const Training alone{.options = {.clip = 0.5, .noise_scale = true}, .on_device = true};
    const Outcome one = train(task(name), alone);
    EXPECT_GT(one.noise_scales.back(), 0);
    for (const std::string& sync : parallel::level_names()) {
      for (const int ranks : {1, 2, 3, 4}) {
        SCOPED_TRACE(std::string(name) + " " + sync + " on " + std::to_string(ranks));
        Training training = alone;
        training.ranks = ranks;
        training.options.sync = sync;
        if (parallel::shards_in_groups(sync)) training.options.shard = ranks == 4 ? 2 : ranks;
        testing::reseed(static_cast<std::uint64_t>(ranks));
        EXPECT_EQ(train(task(name), training), one);
      }
    }
  }
}

TEST_F(OnDevice, APipelineTrainsAsOneRank) {
  const Training alone{.options = {.clip = 0.5}, .on_device = true};
  for (const char* name : {"gpt", "resnet"}) {
    const Outcome one = train(task(name), alone);
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-v"}) {
      for (const char* sync : {"plain", "zero2"}) {
        SCOPED_TRACE(std::string(name) + " " + schedule + " " + sync);
        Training training = alone;
        training.ranks = 4;
        training.options.pipeline = 2;
        training.options.schedule = schedule;
        training.options.sync = sync;
        EXPECT_EQ(train(task(name), training), one);
      }
    }
  }
}

// Rank 0 measures the blocks of a pipeline before it is built.
TEST_F(OnDevice, BlocksOfAPipelineAreMeasuredThere) {
  int on_host = 0, on_device = 0;
  Task spied = task("mlp");
  spied.model = [&](const std::string&) {
    models::Blocks blocks;
    blocks.add("first", {"features"}, [] { return torch::nn::Linear(12, 24); });
    blocks.add("spy", [&] {
      return [&](const at::Tensor& x) {
        ++(x.is_cpu() ? on_host : on_device);
        return x * 1;
      };
    });
    blocks.add("last", [] { return torch::nn::Linear(24, 5); });
    return blocks;
  };
  const auto example = [&spied] { return spied.micro_batch(0, 0); };
  train(spied, {.ranks = 2, .options = {.pipeline = 2, .example = example}, .on_device = true});
  EXPECT_EQ(on_host, 0);
  EXPECT_GT(on_device, 0);
}

// Parts are added in another order than whole rows are, so the CPU's bits are compared.
TEST_F(OnDevice, TensorParallelRanksTrainAsOnTheCpu) {
  for (const bool sequence : {false, true}) {
    SCOPED_TRACE(sequence);
    expect_as_on_cpu("gpt",
                     {.ranks = 4, .options = {.tensor = 2, .sequence = sequence, .clip = 0.5}});
  }
}

TEST_F(OnDevice, ContextParallelRanksTrainAsOnTheCpu) {
  for (const auto& [precision, sync] : {std::pair{"fp32", "zero2"}, {"bf16", "plain"}}) {
    SCOPED_TRACE(precision);
    expect_as_on_cpu(
        "gpt",
        {.ranks = 4, .options = {.sync = sync, .context = 2, .precision = precision, .clip = 0.5}});
  }
}

TEST_F(OnDevice, ExpertParallelRanksTrainAsOnTheCpu) {
  for (const char* sync : {"plain", "zero1", "zero3"}) {
    SCOPED_TRACE(sync);
    expect_as_on_cpu("experts", {.ranks = 4, .options = {.sync = sync, .expert = 2, .clip = 0.5}});
  }
}

// Servers update by kernels, whose bits are not those of LibTorch's operations.
TEST_F(OnDevice, WorkersOfServersTrainAsOneDoes) {
  for (const char* precision : {"fp32", "bf16"}) {
    SCOPED_TRACE(precision);
    Training served{.ranks = 1,
                    .servers = 2,
                    .options = {.sync = "server", .precision = precision, .clip = 0.5},
                    .on_device = true};
    const Outcome one = train(task("gpt"), served);
    const Training plain{.options = {.precision = precision, .clip = 0.5}, .on_device = true};
    EXPECT_NEAR(one.losses.back(), train(task("gpt"), plain).losses.back(), 1e-3);
    for (served.ranks = 2; served.ranks < 4; ++served.ranks)
      EXPECT_EQ(train(task("gpt"), served), one);
  }
}

TEST_F(OnDevice, RanksThatTrainCopiesDoAsOnTheCpu) {
  for (const char* sync : {"local_sgd", "diloco", "easgd", "gossip"}) {
    SCOPED_TRACE(sync);
    expect_as_on_cpu("resnet", {.ranks = 3, .options = {.sync = sync, .local = {.steps = 2}}});
  }
}

TEST_F(OnDevice, CompressedGradientsTrainAsOnTheCpu) {
  for (const char* compression :
       {"bf16", "f16", "topk:0.1", "randomk:0.1", "powersgd:2,1", "onebit"}) {
    SCOPED_TRACE(compression);
    expect_as_on_cpu("gpt", {.ranks = 3, .options = {.clip = 0.5, .compression = compression}});
  }
}

TEST_F(OnDevice, ALossThatIsNoNumberIsNamed) {
  Task broken = task("gpt");
  broken.loss = [](const models::Value& output, const MicroBatch& micro) {
    const at::Tensor loss = token_loss()(output, micro);
    return micro.index == 4 ? loss / 0.0 : loss;
  };
  try {
    train(broken, {.ranks = 2, .on_device = true});
    ADD_FAILURE() << "the step was taken";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("the loss of micro-batch 4 is inf"));
  }
}

// A token outside the vocabulary fails in the device's stream, long after the call.
TEST_F(OnDevice, ADeviceThatFailsInAStepIsNamedByItsRank) {
  for (const char* sync : {"plain", "zero3"}) {
    Task broken = task("gpt");
    broken.micro_batch = [](std::int64_t step, std::uint32_t index) {
      MicroBatch micro = task("gpt").micro_batch(step, index);
      if (step == 1 && index == 4) micro.fields.front().second += 1000;
      return micro;
    };
    try {
      train(broken, {.ranks = 2, .options = {.sync = sync}, .on_device = true});
      ADD_FAILURE() << "the step was taken";
    } catch (const std::exception& error) {
      const int failed = std::string(sync) == "plain" ? 1 : 0;  // whose micro-batch it is
      EXPECT_THAT(error.what(), ::testing::HasSubstr("rank " + std::to_string(failed) +
                                                     " refused the step: threw c10::Error"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("index out of range in self (rank"));
    }
  }
}

TEST_F(OnDevice, AnOperatorWithoutADeterministicFormIsRefused) {
  Task undetermined = task("mlp");
  undetermined.loss = [](const models::Value& output, const MicroBatch& micro) {
    at::globalContext().alertNotDeterministic("median of an image");
    return task("mlp").loss(output, micro);
  };
  try {
    train(undetermined, {.on_device = true});
    ADD_FAILURE() << "the step was taken";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("median of an image has no deterministic form"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("train.reproducible = false"));
  }
}

}  // namespace
}  // namespace trireme::devices
