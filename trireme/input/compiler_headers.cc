#include "trireme/input/compiler_headers.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "trireme/base/error.h"

extern char** environ;

namespace trireme::inline v0::input {
namespace {

std::string read_all(int descriptor) {
  std::string text;
  char piece[4096];
  for (;;) {
    const ssize_t got = ::read(descriptor, piece, sizeof piece);
    if (got > 0) {
      text.append(piece, static_cast<std::size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      return text;
    }
  }
}

// The output of `compiler` on stderr; nullopt if it cannot be run or fails.
std::optional<std::string> ask(const char* compiler) {
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return std::nullopt;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 2);
  const char* arguments[] = {compiler, "-E", "-x", "c++", "-v", "/dev/null", nullptr};
  // Compilers translate the headings that we parse, so ask in the C locale.
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  std::erase_if(variables,
                [](const std::string& v) { return v.starts_with("LC_") || v.starts_with("LANG"); });
  variables.push_back("LC_ALL=C");
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  pid_t child = -1;
  const int failed = ::posix_spawnp(&child, compiler, &actions, nullptr,
                                    const_cast<char* const*>(arguments), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(pipe_ends[1]);
  std::string text = failed == 0 ? read_all(pipe_ends[0]) : std::string();
  ::close(pipe_ends[0]);
  if (failed != 0) return std::nullopt;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
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
  std::string_view list = compiler_output.substr(begin + kBegin.size());
  const auto end = list.find(kEnd);
  if (end == std::string_view::npos) return folders;
  list = list.substr(0, end);
  while (!list.empty()) {
    const auto newline = std::min(list.find('\n'), list.size());
    std::string_view line = list.substr(0, newline);
    list.remove_prefix(std::min(newline + 1, list.size()));
    if (!line.starts_with(' ')) continue;
    line.remove_prefix(1);
    folders.emplace_back(line);
  }
  return folders;
}

std::vector<std::string> compiler_header_folders() {
  std::optional<std::string> output;
  for (const char* compiler : {"c++", "g++", "clang++"}) {
    if ((output = ask(compiler))) break;
  }
  if (!output) {
    throw ConfigError("no C++ compiler could be asked for its library headers, the default text",
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
