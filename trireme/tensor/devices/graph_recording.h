// GraphRecording: the graphs of one kind of device, behind DeviceGraph. Internal to tensor/.
#pragma once

#include <c10/core/Allocator.h>

#include <memory>

namespace trireme::inline v0::tensor {

class GraphRecording {
 public:
  virtual ~GraphRecording() = default;
  /// Records what is given to the current stream of the current device; other threads may allocate
  /// meanwhile. `pool`: another recording's pool(), or {0, 0}.
  virtual void begin(c10::MempoolId_t pool) = 0;
  virtual void end() = 0;
  virtual void replay() = 0;
  virtual c10::MempoolId_t pool() const = 0;
};

/// Null in a build without CUDA's headers, or with a LibTorch without CUDA.
std::unique_ptr<GraphRecording> make_cuda_recording();

}  // namespace trireme::inline v0::tensor
