// The order in which streams run changes no bit, and a wait that is left out is noticed.
// TRIREME_STREAM_ORDERS: how many orders are tried.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>
#include <string>

#include "tests/devices/device_training.h"
#include "trireme/memory/offload_folder.h"
#include "trireme/testing/emulated_device/test_device.h"

namespace trireme::devices {
namespace {

constexpr std::uint64_t kTriedHere = 20;

class StreamOrders : public ::testing::Test {
 protected:
  void SetUp() override { testing::register_emulated_device({.devices = 4}); }
};

Training on_two_ranks(const std::string& sync) {
  return {.ranks = 2, .steps = 2, .options = {.sync = sync, .clip = 0.5}, .on_device = true};
}

TEST_F(StreamOrders, ChangeNoBit) {
  const char* const number = std::getenv("TRIREME_STREAM_ORDERS");
  const std::uint64_t tried = number != nullptr ? std::strtoull(number, nullptr, 10) : kTriedHere;
  Training alone = on_two_ranks("plain");
  alone.on_device = false;
  alone.ranks = 1;
  const Outcome wanted = train(task("gpt"), alone);
  for (std::uint64_t seed = 0; seed < tried; ++seed) {
    Training training = on_two_ranks(seed % 2 == 0 ? "zero3" : "plain");
    if (seed % 4 >= 2) training.options.pipeline = 2;
    if (seed % 4 == 2) training.options.sync = "plain";
    if (seed % 3 == 0) training.options.offload = memory::kOnHost;
    training.seed = seed;
    testing::reseed(seed);
    EXPECT_TRUE(train(task("gpt"), training) == wanted) << "seed " << seed;
  }
}

TEST_F(StreamOrders, AWaitThatIsLeftOutIsNoticed) {
  const WaitsLeftOut left_out = leave_waits_out(task("gpt"), on_two_ranks("zero2"), 20);
  ASSERT_GT(left_out.waits, 50U);
  EXPECT_GT(left_out.noticed, left_out.tried / 4) << "of " << left_out.tried;
}

}  // namespace
}  // namespace trireme::devices
