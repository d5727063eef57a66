// Writes commands that a person can paste into a shell.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace trireme::inline v0 {

/// `text` as one word of a shell's command line: in single quotes if the shell would split or
/// expand it.
inline std::string shell_word(std::string_view text) {
  static constexpr std::string_view kPlain = "/._-+:@%,=";
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c >= 0x80 || std::isalnum(c) != 0 || kPlain.find(static_cast<char>(c)) != kPlain.npos;
  });
  if (plain) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace trireme::inline v0
