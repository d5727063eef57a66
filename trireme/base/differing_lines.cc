#include "trireme/base/differing_lines.h"

#include <algorithm>
#include <set>
#include <vector>

#include "trireme/base/joined.h"

namespace trireme::inline v0 {
namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

std::string differing_lines(std::string_view text, std::string_view other) {
  const auto theirs = lines_of(other);
  const std::set<std::string_view> known(theirs.begin(), theirs.end());
  std::vector<std::string_view> differing = lines_of(text);
  std::erase_if(differing, [&](std::string_view line) { return known.contains(line); });
  return differing.empty() ? "nothing" : joined(differing);
}

}  // namespace trireme::inline v0
