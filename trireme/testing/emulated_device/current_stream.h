// The current device and the current streams of each host thread, and how LibTorch names streams.
//
// c10::Stream has the id 0 for a device's default stream and the StreamIndex for the others.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "trireme/testing/emulated_device/vector_clock.h"

namespace trireme::inline v0::testing {

/// The name under which the backend is registered.
constexpr const char* kBackendName = "emulated";

inline c10::Device emulated_device(int index) {
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

int current_device();
void set_current_device(int device);
/// `device`, or the current device for -1. Throws c10::Error if there is no such device.
int device_or_current(int device);

StreamIndex current_stream(int device);
void set_current_stream(int device, StreamIndex stream);

c10::Stream to_c10(StreamIndex stream);
StreamIndex from_c10(const c10::Stream& stream);

}  // namespace trireme::inline v0::testing
