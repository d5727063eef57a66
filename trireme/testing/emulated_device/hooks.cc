#include "trireme/testing/emulated_device/hooks.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "trireme/testing/emulated_device/allocators.h"
#include "trireme/testing/emulated_device/current_stream.h"
#include "trireme/testing/emulated_device/generator.h"
#include "trireme/testing/emulated_device/runtime.h"
#include "trireme/testing/emulated_device/storages.h"

namespace trireme::inline v0::testing {
namespace {

struct EmulatedHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return Runtime::find() != nullptr; }
  void init() const override {}
  bool hasPrimaryContext(c10::DeviceIndex device) const override { return device < deviceCount(); }
  c10::DeviceIndex deviceCount() const override {
    const Runtime* const runtime = Runtime::find();
    return static_cast<c10::DeviceIndex>(runtime ? runtime->num_devices() : 0);
  }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex before = getCurrentDevice();
    set_current_device(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 || device >= deviceCount() ? getCurrentDevice() : exchangeDevice(device);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<EmulatedGenerator>(device_or_current(device));
  }
  at::Device getDeviceFromPtr(void* data) const override {
    const int device = Runtime::get().device_of_address(data);
    TORCH_CHECK(device >= 0, "the address ", data, " is on no emulated device");
    return emulated_device(device);
  }
  bool isPinnedPtr(const void* data) const override {
    Runtime* const runtime = Runtime::find();
    return runtime && runtime->is_pinned(data);
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

}  // namespace

void register_hooks() { at::RegisterPrivateUse1HooksInterface(new EmulatedHooks()); }

}  // namespace trireme::inline v0::testing
