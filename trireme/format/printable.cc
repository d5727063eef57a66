#include "trireme/format/printable.h"

#include "trireme/base/utf8.h"

namespace trireme::inline v0::format {

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
