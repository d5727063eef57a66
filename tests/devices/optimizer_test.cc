// LAMB and Adafactor, whose steps need sums over whole parameters, give the CPU's bits on a device,
// however parameters are cut.
#include <gtest/gtest.h>

#include "tests/devices/device_training.h"
#include "trireme/models/models.h"
#include "trireme/testing/emulated_device/emulated_device.h"

namespace trireme::devices {
namespace {

// Matrices of several chunks, so that ranks share them.
Task wide_mlp() {
  Task wide = task("mlp");
  wide.model = [](const std::string& precision) {
    return models::make_mlp({.widths = {12, 700, 24, 5}, .precision = precision});
  };
  return wide;
}

void expect_the_cpus_bits(const OptimizerOptions& optimizer, const std::string& precision) {
  const Task task = wide_mlp();
  Training alone{.options = {.precision = precision, .clip = 0.5}, .optimizer = optimizer};
  const Outcome cpu = train(task, alone);
  for (const char* sync : {"plain", "zero1", "zero2", "zero3"}) {
    for (const int ranks : {1, 3}) {
      SCOPED_TRACE(precision + " " + sync + " on " + std::to_string(ranks));
      Training training = alone;
      training.on_device = true;
      training.ranks = ranks;
      training.options.sync = sync;
      testing::reseed(static_cast<std::uint64_t>(ranks));
      EXPECT_TRUE(train(task, training) == cpu);
    }
  }
}

class SummingOptimizer : public ::testing::Test {
 protected:
  void SetUp() override { testing::register_emulated_device({.devices = 4}); }
};

TEST_F(SummingOptimizer, LambGivesTheCpusBits) {
  for (const char* precision : {"fp32", "bf16"})
    expect_the_cpus_bits(Lamb{.learning_rate = 1e-2}, precision);
}

TEST_F(SummingOptimizer, AdafactorGivesTheCpusBits) {
  for (const char* precision : {"fp32", "bf16"})
    expect_the_cpus_bits(Adafactor{.weight_decay = 0.1}, precision);
}

}  // namespace
}  // namespace trireme::devices
