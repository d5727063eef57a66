// Texts that come from people and file systems: whether they are UTF-8 (RFC 3629), and how to show
// them where they are not.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {
inline namespace v0 {

/// The length of the character at text[at], in bytes; 0 where there is none.
std::size_t utf8_length(std::string_view text, std::size_t at);
bool is_utf8(std::string_view text);
/// Whether a byte is one of the control characters of ASCII, such as a line break.
bool is_control(char byte);
/// The text with `\xNN` for each control character and each byte outside of valid UTF-8, so that
/// it stays on one line, and a terminal and a message can hold it.
std::string escaped(std::string_view text);

}  // namespace v0
}  // namespace trireme
