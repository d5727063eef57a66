// A device gives the CPU's bits, on any number of ranks and in any order of its streams.
#include <gtest/gtest.h>

#include <ostream>

#include "tests/devices/device_training.h"
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
};

TEST_F(OnDevice, EveryModelTrainsAsOnTheCpu) {
  for (const Task& task : tasks()) {
    for (const char* precision : {"fp64", "fp32", "bf16"}) {
      SCOPED_TRACE(task.name + " " + precision);
      Training training{.options = {.precision = precision, .clip = 0.5, .noise_scale = true}};
      const Outcome cpu = train(task, training);
      training.on_device = true;
      EXPECT_EQ(train(task, training), cpu);
    }
  }
}

TEST_F(OnDevice, EveryShardingTrainsAsOneRank) {
  for (const char* name : {"gpt", "resnet"}) {
    const Training alone{.options = {.clip = 0.5, .noise_scale = true}, .on_device = true};
    const Outcome one = train(task(name), alone);
    EXPECT_GT(one.noise_scales.back(), 0);
    for (const char* sync : {"plain", "zero1", "zero2", "zero3", "hybrid"}) {
      for (const int ranks : {1, 2, 3, 4}) {
        SCOPED_TRACE(std::string(name) + " " + sync + " on " + std::to_string(ranks));
        Training training = alone;
        training.ranks = ranks;
        training.options.sync = sync;
        training.options.shard = std::string(sync) == "hybrid" ? (ranks == 4 ? 2 : ranks) : 0;
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
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
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

// Parts are added in another order than whole rows are, so the CPU's bits are compared.
TEST_F(OnDevice, TensorParallelRanksTrainAsOnTheCpu) {
  for (const bool sequence : {false, true}) {
    SCOPED_TRACE(sequence);
    Training training{.ranks = 4, .options = {.tensor = 2, .sequence = sequence, .clip = 0.5}};
    const Outcome cpu = train(task("gpt"), training);
    training.on_device = true;
    EXPECT_EQ(train(task("gpt"), training), cpu);
  }
}

}  // namespace
}  // namespace trireme::devices
