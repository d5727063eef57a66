// MaskedText: windows of text with some tokens hidden, for encoders to predict (Devlin et al. 2018,
// arXiv:1810.04805, section 3.1).
//
// Each window has a fixed number of target positions: 15 %, at least one. At a target position the
// input is the mask token (80 %), a random token (10 %) or the original token (10 %). All choices
// are a function of (seed, sample), never of the rank. Immutable, thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "trireme/input/dataset.h"

namespace trireme::inline v0 {
namespace input {

class MaskedText final : public Dataset {
 public:
  /// `text` has windows of `block` tokens from 0 to vocab - 1; the mask token is number `vocab`.
  /// Throws ConfigError if its windows have another length, or vocab is not positive.
  MaskedText(std::shared_ptr<const TextDataset> text, std::int64_t block, std::int64_t vocab,
             std::uint64_t seed);

  std::int64_t size() const override { return text_->size(); }
  /// Number of target positions.
  std::int64_t count_items(std::span<const std::int64_t> samples) const override {
    return static_cast<std::int64_t>(samples.size()) * asked_;
  }
  /// "tokens" [b, block] int64, 0 ... vocab; "targets" [b, block] int64: the original token at
  /// target positions, -1 at the others.
  Fields read(std::span<const std::int64_t> samples) const override;

 private:
  const std::shared_ptr<const TextDataset> text_;
  const std::int64_t block_, vocab_, asked_;
  const std::uint64_t seed_;
};

}  // namespace input
using input::MaskedText;
}  // namespace trireme::inline v0
