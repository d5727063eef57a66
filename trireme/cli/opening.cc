#include "trireme/cli/opening.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <vector>

#include "trireme/format/printable.h"

namespace trireme::inline v0::cli {
namespace {

constexpr std::size_t kRead = 1 << 20;
constexpr std::size_t kMostBytes = 40, kMostWords = 3;

// True if a shell takes the word unchanged in double quotes and a terminal shows it.
bool can_be_typed(std::string_view word) {
  if (word.find_first_of("\"$`!\\") != std::string_view::npos) return false;
  const bool letters = std::any_of(
      word.begin(), word.end(), [](unsigned char c) { return c >= 0x80 || std::isalnum(c) != 0; });
  return letters && format::printable(std::string(word)) == word;
}

// Lines that are neither empty nor indented.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && line.front() != ' ' && line.front() != '\t') lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

struct Prefix {
  std::string text;
  std::size_t lines = 0;
};

// `shorter` extended by the word that most lines beginning with it share.
Prefix one_word_more(const std::vector<std::string_view>& lines, const std::string& shorter) {
  std::map<std::string_view, std::size_t> counts;
  const std::size_t skip = shorter.empty() ? 0 : shorter.size() + 1;
  for (const std::string_view line : lines) {
    if (!line.starts_with(shorter) || line.size() <= skip) continue;
    if (skip > 0 && line[shorter.size()] != ' ') continue;
    const std::size_t end = std::min(line.find(' ', skip), line.size());
    if (end <= kMostBytes && can_be_typed(line.substr(skip, end - skip)))
      ++counts[line.substr(0, end)];
  }
  Prefix best;
  for (const auto& [text, count] : counts)
    if (count > best.lines) best = {std::string(text), count};
  return best;
}

}  // namespace

std::string usual_opening(std::string_view text) {
  std::string_view read = text.substr(0, kRead);
  // The last line may be cut inside a word or a character.
  if (read.size() < text.size()) read = read.substr(0, read.rfind('\n') + 1);
  const std::vector<std::string_view> lines = lines_of(read);
  Prefix opening;
  for (std::size_t words = 0; words < kMostWords; ++words) {
    const Prefix longer = one_word_more(lines, opening.text);
    if (2 * longer.lines <= opening.lines) break;
    opening = longer;
  }
  return opening.text;
}

}  // namespace trireme::inline v0::cli
