#include "trireme/input/compiler_headers.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <sstream>

#include "trireme/base/error.h"

namespace trireme::inline v0::input {
namespace {

// The output of `compiler` on stderr; nullopt if it cannot be run or fails. Compilers translate the
// headings that are parsed below, so it runs in the C locale.
std::optional<std::string> ask(const std::string& compiler) {
  const std::string command =
      "LC_ALL=C " + compiler + " -E -x c++ -v /dev/null 2>&1 >/dev/null </dev/null";
  std::FILE* const output = ::popen(command.c_str(), "re");
  if (output == nullptr) return std::nullopt;
  std::string text;
  char piece[4096];
  for (std::size_t got; (got = std::fread(piece, 1, sizeof piece, output)) > 0;)
    text.append(piece, got);
  if (::pclose(output) != 0) return std::nullopt;
  return text;
}

bool inside(const std::string& folder, const std::string& other) {
  return folder.size() > other.size() && folder.starts_with(other) && folder[other.size()] == '/';
}

}  // namespace

std::vector<std::string> parse_include_folders(std::string_view compiler_output) {
  constexpr std::string_view kBegin = "#include <...> search starts here:\n";
  constexpr std::string_view kEnd = "End of search list.";
  std::vector<std::string> folders;
  const auto begin = compiler_output.find(kBegin);
  if (begin == std::string_view::npos) return folders;
  const std::string_view list = compiler_output.substr(begin + kBegin.size());
  const auto end = list.find(kEnd);
  if (end == std::string_view::npos) return folders;
  std::istringstream lines{std::string(list.substr(0, end))};
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(' ')) folders.push_back(line.substr(1));
  return folders;
}

std::vector<std::string> compiler_header_folders() {
  std::optional<std::string> output;
  for (const char* compiler : {"c++", "g++", "clang++"}) {
    if ((output = ask(compiler))) break;
  }
  if (!output) {
    throw ConfigError(
        "there is no C++ compiler (c++, g++, clang++), whose library headers are the default text",
        {.operation = "data",
         .advice = "Install g++, or give your own text with --data FILE-or-FOLDER."});
  }
  std::vector<std::string> folders;
  for (const std::string& folder : parse_include_folders(*output)) {
    std::error_code missing;
    const auto path = std::filesystem::canonical(folder, missing);
    if (missing || !std::filesystem::is_directory(path, missing)) continue;
    if (std::find(path.begin(), path.end(), "c++") == path.end()) continue;
    folders.push_back(path.string());
  }
  std::sort(folders.begin(), folders.end());
  folders.erase(std::unique(folders.begin(), folders.end()), folders.end());
  const std::vector<std::string> all = folders;
  std::erase_if(folders, [&](const std::string& folder) {
    return std::any_of(all.begin(), all.end(), [&](const auto& o) { return inside(folder, o); });
  });
  if (folders.empty()) {
    throw ConfigError(
        "the C++ compiler names no folder of library headers, the default text",
        {.operation = "data", .advice = "Give your own text with --data FILE-or-FOLDER."});
  }
  return folders;
}

}  // namespace trireme::inline v0::input
