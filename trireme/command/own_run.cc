#include "trireme/command/own_run.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/launch/spawn.h"

namespace trireme {
inline namespace v0 {
namespace command {
namespace {

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TemporaryFolder::TemporaryFolder(std::string operation) : operation_(std::move(operation)) {
  std::string name = std::filesystem::temp_directory_path() / "trireme-XXXXXX";
  if (mkdtemp(name.data()) == nullptr)
    throw ResourceError(
        "cannot make a folder in " + std::filesystem::temp_directory_path().string(),
        {.operation = operation_, .advice = "Set TMPDIR to one with room."});
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

int run_self(const std::vector<std::string>& arguments, const std::string& log,
             const TemporaryFolder& folder) {
  const std::string path = folder.file(log);
  const int output = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (output < 0)
    throw ResourceError("cannot write " + path, {.operation = folder.operation(),
                                                 .advice = "Set TMPDIR to one with room."});
  std::vector<std::string> words = {std::filesystem::read_symlink("/proc/self/exe").string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const launch::Process process = launch::spawn({.command = words,
                                                 .environment = launch::own_environment(),
                                                 .output = output,
                                                 .error = output});
  close(output);
  const int code = wait_for(process.pid);
  close(process.descriptor);
  return code;
}

}  // namespace command
}  // namespace v0
}  // namespace trireme
