// MaskedText: windows of text with some tokens hidden, for encoders to guess (Devlin et al. 2018,
// arXiv:1810.04805, section 3.1).
//
// Of each window a fixed number of positions is asked for: 15 %, at least one. Eight of ten of them
// read the mask token, one a random token, one what stands there. Which and what is a function of
// (seed, sample), never of a rank. Immutable, thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "trireme/input/dataset.h"

namespace trireme {
inline namespace v0 {
namespace input {

class MaskedText final : public Dataset {
 public:
  /// Of `text`'s windows of `block` tokens out of `vocab`; the mask token is number `vocab`.
  MaskedText(std::shared_ptr<const TextDataset> text, std::int64_t block, std::int64_t vocab,
             std::uint64_t seed);

  std::int64_t size() const override { return text_->size(); }
  /// Tokens that are asked for.
  std::int64_t count_items(std::span<const std::int64_t> samples) const override {
    return static_cast<std::int64_t>(samples.size()) * asked_;
  }
  /// "tokens" [b, block] int64, 0 ... vocab; "targets" [b, block] int64: what stood at the
  /// positions that are asked for, -1 at the others.
  Fields read(std::span<const std::int64_t> samples) const override;

 private:
  const std::shared_ptr<const TextDataset> text_;
  const std::int64_t block_, vocab_, asked_;
  const std::uint64_t seed_;
};

}  // namespace input
using input::MaskedText;
}  // namespace v0
}  // namespace trireme
