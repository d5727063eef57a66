#include "trireme/cli/light.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/cli/command_list.h"
#include "trireme/cli/program.h"
#include "trireme/launch/hosts/spawn.h"

namespace trireme::inline v0::cli {
namespace {

// From the folder of one program to the other, in a build and in an installed tree.
constexpr const char* kToWhole = TRIREME_TO_WHOLE_PROGRAM;
constexpr const char* kToLight = TRIREME_TO_LIGHT_PROGRAM;

}  // namespace

std::optional<int> run_light_command(int argc, char** argv) {
  Program program(argc, argv, "trireme", "", "");
  for (const ListedCommand& one : listed_commands()) {
    Command& command = program.add(one.words);
    if (one.kind == ListedCommand::Kind::Light) {
      one.declare(command);
    } else {
      command.hand_over();
    }
  }
  return program.run_if_right();
}

int become_whole_program(char** argv) {
  const std::string path =
      (std::filesystem::path(this_executable()).parent_path() / kToWhole).lexically_normal();
  ::setenv("GLIBC_TUNABLES", launch::kAllocatorTunables, /*overwrite=*/0);
  execv(path.c_str(), argv);
  std::fprintf(
      stderr,
      "error: %s, which has the commands that need LibTorch, cannot be started: %s. Install or "
      "build trireme as a whole: `cmake --install build`, `make build`.\n",
      path.c_str(), std::strerror(errno));
  return static_cast<int>(ExitCode::Resource);
}

std::string this_executable() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error)
    throw ResourceError("cannot read /proc/self/exe: " + error.message(),
                        {.operation = "launch", .advice = "Mount /proc."});
  return path.string();
}

std::string own_program() {
  const std::filesystem::path here = this_executable();
  const std::filesystem::path light = (here.parent_path() / kToLight).lexically_normal();
  std::error_code none;
  return here.parent_path().filename() == "trireme" && here.filename() == light.filename() &&
                 std::filesystem::exists(light, none)
             ? light.string()
             : here.string();
}

}  // namespace trireme::inline v0::cli
