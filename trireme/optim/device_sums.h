// DeviceSums: numbers that devices compute for ChunkSums. All of a step reach the host by one copy,
// for which the host waits once. Internal to optim/. Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "trireme/optim/chunk_sum.h"

namespace trireme::inline v0::optim {

class DeviceSums {
 public:
  using Take = std::function<void(std::span<const double>)>;
  /// `numbers`: fp64, of any shape; deliver() hands them to `take` in row-major order.
  void add(at::Tensor numbers, Take take) {
    numbers_.push_back(std::move(numbers));
    takers_.push_back(std::move(take));
  }
  /// `numbers`: [chunks, n], of the chunks from `first` on. Chunk k gives elements kn ... kn + n-1 of
  /// the sum, which must live until deliver().
  void add_chunks(ChunkSum& sum, std::uint32_t first, at::Tensor numbers);
  /// Waits for the device; calls take() in the order of add().
  void deliver();

 private:
  std::vector<at::Tensor> numbers_;
  std::vector<Take> takers_;
};

}  // namespace trireme::inline v0::optim
