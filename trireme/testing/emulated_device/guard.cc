#include "trireme/testing/emulated_device/guard.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>
#include <utility>

#include "trireme/testing/emulated_device/current_stream.h"
#include "trireme/testing/emulated_device/runtime.h"

namespace trireme::inline v0::testing {
namespace {

const RecordedEvent& recorded(void* event) { return *static_cast<const RecordedEvent*>(event); }

struct EmulatedGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }

  c10::DeviceIndex deviceCount() const noexcept override {
    const Runtime* const runtime = Runtime::find();
    return static_cast<c10::DeviceIndex>(runtime ? runtime->num_devices() : 0);
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return emulated_device(current_device()); }
  void setDevice(c10::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < deviceCount()) setDevice(device);
  }

  c10::Stream getStream(c10::Device device) const override {
    return to_c10(current_stream(device_or_current(device.index())));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, emulated_device(device_or_current(device.index())));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return to_c10(Runtime::get().pool_stream(device_or_current(device.index()), high_priority));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return to_c10(Runtime::get().new_stream(device_or_current(device.index())));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    set_current_stream(device_or_current(stream.device_index()), from_c10(stream));
    return before;
  }
  /// The StreamIndex plus one: no real address, but different for every stream.
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(std::uintptr_t{from_c10(stream)} + 1);
  }
  bool queryStream(const c10::Stream& stream) const override {
    return Runtime::get().query_stream(from_c10(stream));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Runtime::get().synchronize_stream(from_c10(stream));
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    Runtime::get().synchronize_device(device_or_current(device));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(),
                "an event of emulated:", int(device), " is recorded on ", stream.device());
    RecordedEvent now =
        Runtime::get().record(from_c10(stream), flag == c10::EventFlag::BACKEND_DEFAULT);
    if (!*event) *event = new RecordedEvent();
    *static_cast<RecordedEvent*>(*event) = std::move(now);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) Runtime::get().block(from_c10(stream), recorded(event));
  }
  bool queryEvent(void* event) const override {
    return !event || Runtime::get().query_event(recorded(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event) Runtime::get().synchronize_event(recorded(event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex device) const noexcept override {
    if (event && device != current_device()) Runtime::get().note_event_ended_elsewhere();
    delete static_cast<RecordedEvent*>(event);
  }
  /// Milliseconds.
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    Runtime::get().synchronize_event(recorded(first));
    Runtime::get().synchronize_event(recorded(second));
    return std::chrono::duration<double, std::milli>(*recorded(second).time - *recorded(first).time)
        .count();
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    Runtime::get().record_stream(data.get(), from_c10(stream));
  }
};

}  // namespace

void register_guard() {
  static const c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::PrivateUse1,
                                                             new EmulatedGuard());
}

}  // namespace trireme::inline v0::testing
