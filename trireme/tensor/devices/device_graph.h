// DeviceGraph: work of a device (a CUDA graph) that is recorded once and then started by one call
// each time, instead of a call per kernel. Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <functional>
#include <memory>
#include <string>

namespace trireme::inline v0::tensor {

class GraphRecording;

/// While it lives, the calling thread gives work for `device` to a stream of LibTorch's pool: the
/// default stream cannot be recorded. That stream waits for the one before it, and the one before
/// waits for that stream when this object ends. The same thread destroys it.
class RecordableStream {
 public:
  explicit RecordableStream(at::Device device);
  ~RecordableStream();
  RecordableStream(const RecordableStream&) = delete;

 private:
  c10::impl::VirtualGuardImpl guards_;
  c10::Stream own_, before_;
};

class DeviceGraph {
 public:
  /// Why work for `device` cannot be recorded; empty: it can be.
  static std::string unsupported(at::Device device);

  /// Records what `body` gives to the current stream; none of it runs. Memory that `body` allocates
  /// keeps its address until the destructor. Throws what `body` throws, and c10::Error if `body`
  /// waits for the device or does something else that cannot be recorded. `beside`: null, or a
  /// graph that never runs at the same time; both then share memory for temporary tensors.
  DeviceGraph(at::Device device, const std::function<void()>& body, const DeviceGraph* beside);
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;

  /// Gives the recorded work to the current stream.
  void replay();

 private:
  const at::Device device_;
  std::unique_ptr<GraphRecording> recording_;
};

}  // namespace trireme::inline v0::tensor
