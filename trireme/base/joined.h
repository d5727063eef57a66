// joined(): the items of a list in one text.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace trireme::inline v0 {

/// "a, b, c": `text(item)` of each item of `range`, a string or a view of one, with `separator`
/// between them. Empty for an empty range.
template <class Range, class Text = std::identity>
std::string joined(const Range& range, Text text = {}, std::string_view separator = ", ") {
  std::string all;
  bool first = true;
  for (const auto& item : range) {
    if (!first) all += separator;
    first = false;
    all += std::invoke(text, item);
  }
  return all;
}

}  // namespace trireme::inline v0
