// Tokenizer: text to tokens and back, behind one interface. This release has the byte tokenizer.
//
// Immutable after construction, so thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::inline v0::format {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string_view name() const noexcept = 0;
  /// Tokens are 0 ... vocabulary_size() - 1.
  virtual std::int64_t vocabulary_size() const noexcept = 0;
  /// Any bytes are accepted; decode(encode(text)) == text.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// A token outside the vocabulary throws ConfigError naming it.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
};

/// "bytes": one token per byte, 256 in all. Another name throws ConfigError listing the choices.
std::shared_ptr<const Tokenizer> make_tokenizer(std::string_view name);

/// `text` as a terminal can show it: control bytes and bytes outside of valid UTF-8 become '?',
/// except newline and tab.
std::string printable(std::string_view text);

}  // namespace trireme::inline v0::format
