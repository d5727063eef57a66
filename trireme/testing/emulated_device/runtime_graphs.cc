// Graphs of the emulated machine (runtime.h). Memory that a graph allocates stays in place while
// the graph lives. Unlike on CUDA, a graph has one stream: an event on that stream is an error.
#include <c10/util/Exception.h>

#include <utility>

#include "trireme/testing/emulated_device/runtime.h"

namespace trireme::inline v0::testing {

void Runtime::check_not_recorded(StreamIndex stream, const char* what) const {
  TORCH_CHECK(!all_[stream].recording, what, " ", name_of_locked(stream), ", which is recorded");
}

void Runtime::begin_recording(StreamIndex stream) {
  const Lock lock(streams_.mutex());
  check_not_recorded(stream, "a second graph records");
  TORCH_CHECK(stream != default_stream(all_[stream].device), "a default stream is recorded");
  all_[stream].recording = std::make_shared<Recording>();
}

std::shared_ptr<Recording> Runtime::end_recording(StreamIndex stream) {
  const Lock lock(streams_.mutex());
  TORCH_CHECK(all_[stream].recording, name_of_locked(stream), " is not recorded");
  return std::exchange(all_[stream].recording, nullptr);
}

void Runtime::replay(const Recording& recording, StreamIndex stream) {
  for (const Launch& work : recording.work) launch(stream, work);
}

void Runtime::forget(const Recording& recording) {
  for (void* const address : recording.blocks) {
    bool unused = false;
    {
      const Lock lock(streams_.mutex());
      Block& block =
          devices_[device_of_address(address)].blocks.at(static_cast<std::byte*>(address));
      block.recorded = false;
      unused = block.unused;
    }
    if (unused) free(address);
  }
}

}  // namespace trireme::inline v0::testing
