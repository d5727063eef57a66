// A prompt that suits a text: its most frequent beginning of a line. `train` suggests it in its
// last line. A pure function.
#pragma once

#include <string>
#include <string_view>

namespace trireme::inline v0::cli {

/// One to three words, at most 40 bytes, safe in double quotes on a shell's command line: the most
/// frequent first word of a line, and each next word that more than half of those lines share.
/// Empty if no line begins with such a word. Reads only the first megabyte.
std::string usual_opening(std::string_view text);

}  // namespace trireme::inline v0::cli
