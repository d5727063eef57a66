#include "trireme/input/dataset.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/input/epoch_order.h"

namespace trireme::inline v0::input {
namespace {
constexpr std::uint64_t kWindowStream = 1;  // differs from the streams of epoch_order
}

TextDataset::Tokens::Tokens(std::string_view text, std::shared_ptr<const void> own)
    : owner(std::move(own)),
      bytes(reinterpret_cast<const unsigned char*>(text.data())),
      size(static_cast<std::int64_t>(text.size())) {}

void TextDataset::Tokens::copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const {
  words ? std::copy_n(words + begin, count, out) : std::copy_n(bytes + begin, count, out);
}

TextDataset::TextDataset(Tokens tokens, std::int64_t block, Windows windows, std::uint64_t seed)
    : tokens_(std::move(tokens)), block_(block), windows_(windows), seed_(seed) {
  const std::int64_t length = tokens_.size;
  if (block_ < 1 || length <= block_) {
    throw ConfigError(
        "the text is too short: " + std::to_string(length) + " tokens, but a block of " +
            std::to_string(block_) + " needs at least " +
            std::to_string(std::max<std::int64_t>(block_, 1) + 1),
        {.operation = "data", .advice = "Give a longer text, or a smaller model.block."});
  }
}

std::shared_ptr<const TextDataset> TextDataset::random_windows(Tokens tokens, std::int64_t block,
                                                               std::uint64_t seed) {
  return std::shared_ptr<const TextDataset>(
      new TextDataset(std::move(tokens), block, Windows::Random, seed));
}

std::shared_ptr<const TextDataset> TextDataset::fixed_windows(Tokens tokens, std::int64_t block) {
  return std::shared_ptr<const TextDataset>(
      new TextDataset(std::move(tokens), block, Windows::Fixed, 0));
}

std::int64_t TextDataset::size() const {
  if (windows_ == Windows::Random) return 0;
  return (tokens_.size - 1) / block_;
}

std::int64_t TextDataset::count_items(std::span<const std::int64_t> samples) const {
  return static_cast<std::int64_t>(samples.size()) * block_;
}

std::int64_t TextDataset::position(std::int64_t sample) const {
  TRIREME_CHECK(sample >= 0);
  if (windows_ == Windows::Fixed) {
    TRIREME_CHECK(sample < size());
    return sample * block_;
  }
  const auto starts = static_cast<std::uint64_t>(tokens_.size - block_);
  return static_cast<std::int64_t>(
      random_below(starts, seed_, kWindowStream, static_cast<std::uint64_t>(sample)));
}

Fields TextDataset::read(std::span<const std::int64_t> samples) const {
  const auto rows = static_cast<std::int64_t>(samples.size());
  at::Tensor tokens = at::empty({rows, block_}, at::kLong);
  at::Tensor targets = at::empty({rows, block_}, at::kLong);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t begin = position(samples[static_cast<std::size_t>(row)]);
    tokens_.copy(begin, block_, tokens.data_ptr<std::int64_t>() + row * block_);
    tokens_.copy(begin + 1, block_, targets.data_ptr<std::int64_t>() + row * block_);
  }
  return {{"tokens", std::move(tokens)}, {"targets", std::move(targets)}};
}

}  // namespace trireme::inline v0::input
