// LossyCompressor: error feedback, for the compressors that do not send everything.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "trireme/sync/compression/compressor.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {

inline at::TensorOptions floats_on(Device device) {
  return at::TensorOptions(tensor::at_device(device)).dtype(at::kFloat);
}

class LossyCompressor : public Compressor {
 public:
  LossyCompressor(comm::Communicator& world, const std::vector<BucketShape>& buckets);
  /// The residual of each parameter, a row for each rank.
  std::vector<NamedShard> state() override;

 protected:
  /// The elements of a bucket that were not sent yet.
  at::Tensor& residual(std::size_t bucket) { return residuals_[bucket]; }
  /// Adds `local` and returns the residual to send. The caller subtracts what it sends.
  at::Tensor& add(std::size_t bucket, const at::Tensor& local);
  void forget() final;

 private:
  const std::vector<BucketShape> buckets_;
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>>
      gaps_;  // of buckets: begin, count
  std::vector<at::Tensor> residuals_;
};

}  // namespace trireme::inline v0::parallel
