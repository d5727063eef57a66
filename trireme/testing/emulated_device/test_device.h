// Shared by tests on the emulated device: the registered device, its races collected, comparisons.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <gtest/gtest.h>

#include <cstring>

#include <mutex>
#include <utility>
#include <vector>

#include "trireme/testing/emulated_device/emulated_device.h"

namespace trireme::inline v0::testing {

inline c10::Device on(int device) {
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)};
}

/// Registers the device with two devices of 64 MiB.
class EmulatedTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kMemoryBytes = std::size_t{64} << 20;
  void SetUp() override {
    register_emulated_device({.devices = 2, .seed = 1, .memory_bytes = kMemoryBytes});
    reset_emulated_stats();
  }
};

/// While it lives, races are kept instead of ending the process.
class CollectedRaces {
 public:
  CollectedRaces()
      : before_(set_race_handler([this](const RaceReport& race) {
          const std::lock_guard lock(mutex_);
          all_.push_back(race);
        })) {}
  ~CollectedRaces() { set_race_handler(std::move(before_)); }
  CollectedRaces(const CollectedRaces&) = delete;

  std::vector<RaceReport> all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    all_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<RaceReport> all_;
  RaceHandler before_;
};

/// The same type, sizes and bytes. Both are brought to the CPU.
inline ::testing::AssertionResult same_bits(const at::Tensor& left, const at::Tensor& right) {
  const at::Tensor a = left.detach().cpu().contiguous(), b = right.detach().cpu().contiguous();
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes())
    return ::testing::AssertionFailure() << a.sizes() << " of " << a.scalar_type() << " and "
                                         << b.sizes() << " of " << b.scalar_type();
  if (a.numel() > 0 && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) != 0)
    return ::testing::AssertionFailure() << "values differ";
  return ::testing::AssertionSuccess();
}

}  // namespace trireme::inline v0::testing
