// Texts from users and file systems: checks whether they are UTF-8 (RFC 3629), and makes others
// printable.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::inline v0 {

/// The length in bytes of the character at text[at]; 0 if there is no valid character.
std::size_t utf8_length(std::string_view text, std::size_t at);
bool is_utf8(std::string_view text);
/// True for ASCII control characters, such as a line break.
bool is_control(char byte);
/// The text with `\xNN` for each control character and each byte that is not valid UTF-8. The
/// result is one line that terminals and messages can hold.
std::string escaped(std::string_view text);

}  // namespace trireme::inline v0
