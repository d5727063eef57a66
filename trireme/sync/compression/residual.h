// Error feedback, shared by the compressors that do not send everything.
#pragma once

#include <ATen/Functions.h>

#include <vector>

#include "trireme/sync/compression/compressor.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {

inline at::TensorOptions floats_on(Device device) {
  return at::TensorOptions(tensor::at_device(device)).dtype(at::kFloat);
}

/// The elements of each bucket that were not sent yet.
class Residuals {
 public:
  explicit Residuals(const std::vector<BucketShape>& buckets) {
    for (const BucketShape& bucket : buckets)
      kept_.push_back(at::zeros({bucket.count}, floats_on(bucket.device)));
  }
  /// Adds `local` and returns the residual to send. The caller subtracts what it sends.
  at::Tensor& add(std::size_t bucket, const at::Tensor& local) { return kept_[bucket].add_(local); }
  at::Tensor& of(std::size_t bucket) { return kept_[bucket]; }
  void clear() {
    for (at::Tensor& one : kept_) one.zero_();
  }

 private:
  std::vector<at::Tensor> kept_;
};

}  // namespace trireme::inline v0::parallel
