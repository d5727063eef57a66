// A prompt that suits a text: how most of its lines begin. It is used in the line that suggests a
// command after a training. A pure function.
#pragma once

#include <string>
#include <string_view>

namespace trireme::inline v0::cli {

/// One to three words, at most 40 bytes, safe in double quotes on a shell's command line: the first
/// word that most lines of `text` share, and the words that mostly follow it. Empty if no line
/// begins with such a word. Reads only the first megabyte.
std::string usual_opening(std::string_view text);

}  // namespace trireme::inline v0::cli
