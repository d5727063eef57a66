#include "trireme/optim/device_sums.h"

#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::optim {

void DeviceSums::add_chunks(ChunkSum& sum, std::uint32_t first, at::Tensor numbers) {
  const auto width = static_cast<std::size_t>(numbers.size(1));
  add(std::move(numbers), [&sum, first, width](std::span<const double> values) {
    std::uint32_t chunk = first;
    for (std::size_t at = 0; at < values.size(); at += width, ++chunk)
      sum.add(chunk, chunk * width, values.subspan(at, width));
  });
}

void DeviceSums::deliver() {
  const std::vector<double> all = tensor::numbers_on_host(numbers_);
  std::span<const double> left = all;
  for (std::size_t i = 0; i < takers_.size(); ++i) {
    const auto count = static_cast<std::size_t>(numbers_[i].numel());
    takers_[i](left.first(count));
    left = left.subspan(count);
  }
  numbers_.clear();
  takers_.clear();
}

}  // namespace trireme::inline v0::optim
