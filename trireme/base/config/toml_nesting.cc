#include "trireme/base/config/toml_nesting.h"

#include <algorithm>
#include <cstddef>

namespace trireme::inline v0 {
namespace {

// The position after the string or comment at `at`, or after one character. A single-line string
// ends with its line even if it is not closed; the parser reports that.
std::size_t after_token(std::string_view text, std::size_t at) {
  const char c = text[at];
  if (c == '#') return std::min(text.find('\n', at), text.size());
  if (c != '"' && c != '\'') return at + 1;
  const std::string_view three = text.substr(at, 3);
  const bool long_one = three == "\"\"\"" || three == "'''";
  const std::string_view quote = long_one ? three : text.substr(at, 1);
  for (std::size_t i = at + quote.size(); i < text.size(); ++i) {
    if (c == '"' && text[i] == '\\') {
      ++i;
    } else if (text.substr(i, quote.size()) == quote) {
      std::size_t end = i + quote.size();
      const std::size_t most = long_one ? end + 2 : end;  // a long string may end in two quotes
      while (end < std::min(most, text.size()) && text[end] == c) ++end;
      return end;
    } else if (!long_one && text[i] == '\n') {
      return i;
    }
  }
  return text.size();
}

}  // namespace

int too_deep_line(std::string_view text) {
  int line = 1, brackets = 0, dots = 0;  // dots: in the current name
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '[' || c == '{') ++brackets;
    if ((c == ']' || c == '}') && brackets > 0) --brackets;
    if (c == '.') ++dots;
    if (c == ',' || c == '=' || c == '\n' || c == '{' || c == '}') dots = 0;
    if (brackets > kMostNesting || dots > kMostNesting) return line;
    const std::size_t next = after_token(text, at);
    for (; at < next; ++at) line += text[at] == '\n' ? 1 : 0;
  }
  return 0;
}

}  // namespace trireme::inline v0
