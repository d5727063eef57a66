#include "trireme/input/masked_text.h"

#include <ATen/ops/full_like.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/input/epoch_order.h"

namespace trireme::inline v0::input {
namespace {

constexpr std::uint64_t kPositionStream = 3, kTokenStream = 4;  // differ from other data's streams

}  // namespace

MaskedText::MaskedText(std::shared_ptr<const TextDataset> text, std::int64_t block,
                       std::int64_t vocab, std::uint64_t seed)
    : text_(std::move(text)),
      block_(block),
      vocab_(vocab),
      asked_(std::max<std::int64_t>(1, (15 * block + 50) / 100)),
      seed_(seed) {
  const std::int64_t sample = 0, length = text_->count_items({&sample, 1});
  if (block != length || vocab < 1)
    throw ConfigError("a MaskedText of " + std::to_string(block) + " tokens below " +
                          std::to_string(vocab) + " over windows of " + std::to_string(length),
                      {.operation = "data",
                       .advice = "Give the block of the text, and the number of its tokens."});
}

Fields MaskedText::read(std::span<const std::int64_t> samples) const {
  Fields fields = text_->read(samples);
  at::Tensor& tokens = fields[0].second;
  at::Tensor& targets = fields[1].second;
  targets = at::full_like(tokens, -1);
  std::vector<std::int64_t> positions(static_cast<std::size_t>(block_));
  for (std::size_t row = 0; row < samples.size(); ++row) {
    auto* token = tokens.data_ptr<std::int64_t>() + static_cast<std::int64_t>(row) * block_;
    auto* target = targets.data_ptr<std::int64_t>() + static_cast<std::int64_t>(row) * block_;
    const auto first = static_cast<std::uint64_t>(samples[row] * block_);
    std::iota(positions.begin(), positions.end(), 0);
    for (std::int64_t i = 0; i < asked_; ++i) {  // the first steps of a Fisher-Yates shuffle
      const auto number = first + static_cast<std::uint64_t>(i);
      const auto left = static_cast<std::uint64_t>(block_ - i);
      const auto other = static_cast<std::size_t>(
          static_cast<std::uint64_t>(i) + random_below(left, seed_, kPositionStream, number));
      std::swap(positions[static_cast<std::size_t>(i)], positions[other]);
      const std::int64_t position = positions[static_cast<std::size_t>(i)];
      target[position] = token[position];
      const auto drawn = static_cast<std::int64_t>(
          random_below(static_cast<std::uint64_t>(10 * vocab_), seed_, kTokenStream, number));
      if (drawn % 10 < 8) {
        token[position] = vocab_;
      } else if (drawn % 10 == 8) {
        token[position] = drawn / 10;
      }
    }
  }
  return fields;
}

}  // namespace trireme::inline v0::input
