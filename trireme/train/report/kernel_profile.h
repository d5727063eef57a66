// KernelProfile: LibTorch's profile of a few steps, in Chrome's trace format: operators of the
// thread that trains and, on NVIDIA's GPUs, kernels and copies (categories "kernel", "gpu_memcpy").
// Profiled steps are slower.
//
// One per process. The thread that makes it makes all calls.
#pragma once

#include <string>

#include "trireme/base/buffer.h"

namespace trireme::inline v0::train {

class KernelProfile {
 public:
  static constexpr long kWarmUp = 3, kSteps = 3;
  /// Profiles kSteps steps after the first kWarmUp. An empty `path`: none.
  KernelProfile(std::string path, Device device) : path_(std::move(path)), device_(device) {}
  ~KernelProfile();
  KernelProfile(const KernelProfile&) = delete;
  /// Call before and after each step. end() writes the file after the last profiled step, or if it
  /// is the `last` one, and then returns true.
  void begin();
  bool end(bool last);
  const std::string& path() const noexcept { return path_; }
  /// Whether a file was asked for and is not written.
  bool lacks() const noexcept { return !path_.empty() && !written_; }

 private:
  const std::string path_;
  const Device device_;
  long steps_ = 0;  // so far
  bool running_ = false, written_ = false;
};

}  // namespace trireme::inline v0::train
