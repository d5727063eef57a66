#include "trireme/cli/programs.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "trireme/base/shell_word.h"

namespace trireme::inline v0::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> folders_of_path() {
  const char* path = std::getenv("PATH");
  std::istringstream text(path != nullptr ? path : "");
  std::vector<std::string> folders;
  for (std::string folder; std::getline(text, folder, ':');)
    if (!folder.empty()) folders.push_back(folder);
  return folders;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// MPICH's launcher prints its version in the second line of a report.
std::string mpi_version(const std::string& output) {
  constexpr std::string_view kVersion = "Version:";
  const std::size_t at = output.find(kVersion);
  if (!output.starts_with("HYDRA") || at == std::string::npos) return first_line(output);
  const std::string number = first_line(output.substr(at + kVersion.size()));
  return "MPICH (Hydra) " + number.substr(std::min(number.find_first_not_of(' '), number.size()));
}

// Names such as mpirun, mpirun.openmpi, mpiexec.hydra; the plain ones first.
std::vector<std::string> launchers_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code missing;
  for (fs::directory_iterator next(folder, missing), end; !missing && next != end;
       next.increment(missing)) {
    const std::string name = next->path().filename().string();
    const std::string stem = name.substr(0, name.find('.'));
    if (stem == "mpirun" || stem == "mpiexec") names.push_back(name);
  }
  std::sort(names.begin(), names.end(), [](const std::string& one, const std::string& other) {
    const auto rank = [](const std::string& name) {
      return std::pair(!name.starts_with("mpirun"), name.size());
    };
    return std::pair(rank(one), one) < std::pair(rank(other), other);
  });
  return names;
}

}  // namespace

std::string program_on_path(const std::string& name) {
  for (const std::string& folder : folders_of_path()) {
    const std::string candidate = folder + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

std::string version_output(const std::string& path) {
  if (path.empty()) return {};
  const std::string command = shell_word(path) + " --version 2>/dev/null";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> output(popen(command.c_str(), "re"),
                                                               pclose);
  std::string out;
  char buffer[512];
  for (std::size_t n = 0; output && (n = std::fread(buffer, 1, sizeof buffer, output.get())) > 0;)
    out.append(buffer, n);
  return out;
}

std::vector<MpiProgram> find_mpis() {
  std::vector<MpiProgram> found;
  std::set<std::string> seen;
  for (const std::string& folder : folders_of_path()) {
    for (const std::string& name : launchers_in(folder)) {
      std::string path = folder;
      path.append("/").append(name);
      std::error_code missing;
      const fs::path real = fs::canonical(path, missing);
      if (missing || access(path.c_str(), X_OK) != 0 || !seen.insert(real.string()).second)
        continue;
      const std::string version = mpi_version(version_output(path));
      found.push_back({path, version.empty() ? "of an unknown version" : version});
    }
  }
  return found;
}

}  // namespace trireme::inline v0::cli
