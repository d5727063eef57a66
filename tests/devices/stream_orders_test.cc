// The order in which streams run changes no bit, and a wait that is left out is noticed.
// TRIREME_STREAM_ORDERS: how many orders are tried.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>
#include <string>

#include "tests/devices/device_training.h"
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
    training.seed = seed;
    testing::reseed(seed);
    EXPECT_TRUE(train(task("gpt"), training) == wanted) << "seed " << seed;
  }
}

// A wait may be there twice over; then nothing changes without it.
TEST_F(StreamOrders, AWaitThatIsLeftOutIsNoticed) {
  const Training training = on_two_ranks("zero2");
  testing::reset_emulated_stats();
  const Outcome wanted = train(task("gpt"), training);
  const std::uint64_t waits = testing::emulated_stats().waits;
  ASSERT_GT(waits, 50U);
  int noticed = 0, tried = 0;
  for (std::uint64_t left_out = 1; left_out <= waits; left_out += 1 + waits / 20, ++tried) {
    const testing::CollectedRaces races;
    testing::skip_one_wait(left_out);
    const bool same = train(task("gpt"), training) == wanted;
    noticed += !races.all().empty();
    EXPECT_TRUE(same || !races.all().empty()) << "wait " << left_out << " of " << waits;
  }
  testing::skip_one_wait(0);
  EXPECT_GT(noticed, tried / 4) << "of " << tried;
}

}  // namespace
}  // namespace trireme::devices
