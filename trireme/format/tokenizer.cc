#include "trireme/format/tokenizer.h"

#include "trireme/base/error.h"
#include "trireme/base/utf8.h"

namespace trireme::inline v0::format {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::string_view name() const noexcept override { return "bytes"; }
  std::int64_t vocabulary_size() const noexcept override { return 256; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> tokens(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
      tokens[i] = static_cast<unsigned char>(text[i]);
    }
    return tokens;
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (const std::int32_t token : tokens) {
      if (token < 0 || token > 255) {
        throw ConfigError(
            "token " + std::to_string(token) + " is not a byte",
            {.operation = "decode", .advice = "The byte tokenizer has tokens 0-255."});
      }
      text += static_cast<char>(token);
    }
    return text;
  }
};

}  // namespace

std::shared_ptr<const Tokenizer> make_tokenizer(std::string_view name) {
  if (name == "bytes") return std::make_shared<ByteTokenizer>();
  throw ConfigError("there is no tokenizer \"" + std::string(name) + "\"",
                    {.operation = "tokenizer", .advice = "This release has \"bytes\"."});
}

std::string printable(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    const unsigned char first = static_cast<unsigned char>(text[at]);
    const bool control =
        length == 1 && (first < 0x20 || first == 0x7F) && first != '\n' && first != '\t';
    const bool c1 = length == 2 && first == 0xC2 && static_cast<unsigned char>(text[at + 1]) < 0xA0;
    if (length == 0 || control || c1) {
      shown += '?';
      at += length == 0 ? 1 : length;
    } else {
      shown += text.substr(at, length);
      at += length;
    }
  }
  return shown;
}

}  // namespace trireme::inline v0::format
