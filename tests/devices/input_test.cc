// Batches that are copied to a device while earlier ones are computed, and what a step waits for.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "tests/devices/device_training.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/input/batches.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/testing/emulated_device/test_device.h"

namespace trireme::devices {
namespace {

constexpr std::int64_t kSamples = 64;

// Sample i is a row of four times the number i.
class Rows final : public Dataset {
 public:
  std::int64_t size() const override { return kSamples; }
  std::int64_t count_items(std::span<const std::int64_t> samples) const override {
    return static_cast<std::int64_t>(samples.size());
  }
  input::Fields read(std::span<const std::int64_t> samples) const override {
    const at::Tensor numbers =
        at::tensor(std::vector<std::int64_t>(samples.begin(), samples.end()));
    return {{"row", numbers.unsqueeze(1).expand({-1, 4}).contiguous()}};
  }
};

class DeviceInput : public ::testing::Test {
 protected:
  void SetUp() override { testing::register_emulated_device({.devices = 4}); }

  // The sums of the batches of an epoch, computed on the device as they come.
  static std::vector<std::int64_t> sums(Device device, int prefetch) {
    Batches batches(std::make_shared<Rows>(),
                    {.batch = 8, .micro = 4, .steps = 8, .prefetch = prefetch, .device = device}, 0,
                    1, RealWaiter::make());
    std::vector<at::Tensor> sums;
    for (const Batch& batch : batches)
      for (const MicroBatch& micro : batch.micro) sums.push_back(micro.field("row").sum());
    std::vector<std::int64_t> values;
    for (const at::Tensor& sum : sums) values.push_back(sum.cpu().item<std::int64_t>());
    return values;
  }
};

TEST_F(DeviceInput, IsWhatTheHostReads) {
  const auto wanted = sums({}, 2);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    testing::reseed(seed);
    for (const int prefetch : {0, 1, 3})
      EXPECT_EQ(sums({DeviceKind::Other, 1}, prefetch), wanted) << "seed " << seed;
  }
}

// A dataset may decode its samples on the device.
TEST_F(DeviceInput, AFieldThatIsThereAlreadyStays) {
  const Device device{DeviceKind::Other, 1};
  const at::Tensor field = at::ones({4}, tensor::at_device(device));
  EXPECT_TRUE(tensor::on_device(field, field.device()).is_same(field));
}

TEST_F(DeviceInput, AMissingWaitForABatchIsNoticed) {
  const testing::CollectedRaces races;
  testing::skip_one_wait(3);
  sums({DeviceKind::Other, 1}, 2);
  testing::skip_one_wait(0);
  ASSERT_FALSE(races.all().empty());
  EXPECT_EQ(races.all().front().kind, testing::RaceKind::ReadAfterWrite);
}

// Losses, norms and flags are read together at the end of a step.
TEST_F(DeviceInput, MoreMicroBatchesBringNoMoreReadsOfTheDevice) {
  const auto reads = [](std::uint32_t micro_batches) {
    testing::reset_emulated_stats();
    train(task("gpt"), {.total = micro_batches, .options = {.clip = 0.5}, .on_device = true});
    return testing::emulated_stats().copies_to_host;
  };
  EXPECT_EQ(reads(12), reads(3));
}

}  // namespace
}  // namespace trireme::devices
