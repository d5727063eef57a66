// number_text: a number in a sentence, as short as it can be read back: 0.1, 1e+308, nan.
#pragma once

#include <charconv>
#include <string>

namespace trireme {
inline namespace v0 {

inline std::string number_text(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace v0
}  // namespace trireme
