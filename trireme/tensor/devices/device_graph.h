// DeviceGraph: work of a device that is recorded once and given to it again by one call, so that the
// host does not launch every kernel anew (a CUDA graph). Not thread safe.
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
/// default stream cannot be recorded. At both ends the later stream's work comes after the other's.
/// The same thread destroys it.
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

  /// Records what `body` gives to the current stream; none of it runs. What it allocates keeps its
  /// place until the destructor. Throws what `body` throws, and c10::Error if `body` waits for the
  /// device or does something else that cannot be recorded. `beside`: a graph that runs at another
  /// time, to share memory for what neither keeps; or null.
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
