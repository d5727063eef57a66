#include "trireme/testing/emulated_device/current_stream.h"

#include <c10/util/Exception.h>

#include <map>

#include "trireme/testing/emulated_device/runtime.h"

namespace trireme::inline v0::testing {
namespace {

thread_local int device_of_thread = 0;
thread_local std::map<int, StreamIndex> streams_of_thread;  // none: the default stream

}  // namespace

int current_device() { return device_of_thread; }

void set_current_device(int device) {
  Runtime::get().check_device(device);
  device_of_thread = device;
}

int device_or_current(int device) {
  if (device == -1) return current_device();
  Runtime::get().check_device(device);
  return device;
}

StreamIndex current_stream(int device) {
  const auto found = streams_of_thread.find(device);
  return found == streams_of_thread.end() ? Runtime::get().default_stream(device) : found->second;
}

void set_current_stream(int device, StreamIndex stream) { streams_of_thread[device] = stream; }

c10::Stream to_c10(StreamIndex stream) {
  const int device = Runtime::get().device_of(stream);
  const bool is_default = stream == Runtime::get().default_stream(device);
  return c10::Stream(c10::Stream::UNSAFE, emulated_device(device),
                     is_default ? 0 : static_cast<c10::StreamId>(stream));
}

StreamIndex from_c10(const c10::Stream& stream) {
  TORCH_CHECK(stream.device_type() == c10::DeviceType::PrivateUse1, "a stream of ", stream.device(),
              " is given to the emulated device");
  const int device = device_or_current(stream.device_index());
  return stream.id() == 0 ? Runtime::get().default_stream(device)
                          : static_cast<StreamIndex>(stream.id());
}

}  // namespace trireme::inline v0::testing
