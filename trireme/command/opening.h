// A prompt that suits a text: how its lines mostly begin. For the line that says what to type after
// a training. A pure function.
#pragma once

#include <string>
#include <string_view>

namespace trireme {
inline namespace v0 {
namespace command {

/// One to three words, at most 40 bytes, that may stand in double quotes on a shell's command line:
/// the first word that most lines of `text` share, and those that mostly follow it. Empty where no
/// line begins with such a word. Looks at the first megabyte.
std::string usual_opening(std::string_view text);

}  // namespace command
}  // namespace v0
}  // namespace trireme
