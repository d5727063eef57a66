#include "trireme/optim/chunk_sum.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::optim {
namespace {

// left += right, over the interval that covers both.
void merge(ChunkSum::Node& left, ChunkSum::Node right) {
  if (right.first < left.first) {
    left.values.insert(left.values.begin(), left.first - right.first, 0.0);
    left.first = right.first;
  }
  const std::size_t end = right.first + right.values.size();
  if (left.first + left.values.size() < end) left.values.resize(end - left.first, 0.0);
  double* into = left.values.data() + (right.first - left.first);
  for (std::size_t i = 0; i < right.values.size(); ++i) into[i] += right.values[i];
  left.chunks.count += right.chunks.count;
}

}  // namespace

void ChunkSum::add(Node node) {
  TRIREME_CHECK(node.chunks.end() <= num_chunks_);
  TRIREME_CHECK((nodes_.empty() || nodes_.back().chunks.end() <= node.chunks.first) == true);
  TRIREME_CHECK(node.first + node.values.size() <= width_);
  nodes_.push_back(std::move(node));
  while (nodes_.size() > 1) {
    Node& left = nodes_[nodes_.size() - 2];
    if (kernel::sibling(nodes_.back().chunks, num_chunks_) != left.chunks) return;
    merge(left, std::move(nodes_.back()));
    nodes_.pop_back();
  }
}

bool ChunkSum::is_whole() const noexcept {
  if (num_chunks_ == 0) return true;
  return nodes_.size() == 1 && nodes_[0].chunks.count == num_chunks_;
}

void ChunkSum::complete(std::vector<double> total) {
  TRIREME_CHECK(total.size() == width_);
  nodes_.clear();
  total_ = std::move(total);
}

const std::vector<double>& ChunkSum::total() {
  if (!total_.empty() || width_ == 0) return total_;
  TRIREME_CHECK(is_whole() == true);
  total_.assign(width_, 0.0);
  for (const Node& node : nodes_)  // one; none if the parameter is empty
    std::copy(node.values.begin(), node.values.end(),
              total_.begin() + static_cast<std::ptrdiff_t>(node.first));
  nodes_.clear();
  return total_;
}

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
