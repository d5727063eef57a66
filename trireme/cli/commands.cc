#include "trireme/cli/commands.h"

#include <string>
#include <vector>

#include "trireme/cli/command_list.h"

namespace trireme::inline v0 {
namespace cli {

#define COMMAND(words, name) void declare_##name(Command& command);
#define LIGHT_COMMAND COMMAND
#define TORCH_COMMAND(words, name)
#define LATER_COMMAND(word)
#include "trireme/cli/commands.inc"
#undef COMMAND
#undef LIGHT_COMMAND
#undef TORCH_COMMAND
#undef LATER_COMMAND

std::vector<ListedCommand> listed_commands() {
  return {
#define COMMAND(words, name) {words, declare_##name},
#define LIGHT_COMMAND(words, name) {words, declare_##name, false, true},
#define TORCH_COMMAND(words, name) {words, nullptr, true},
#define LATER_COMMAND(word) {word, nullptr},
#include "trireme/cli/commands.inc"
#undef COMMAND
#undef LIGHT_COMMAND
#undef TORCH_COMMAND
#undef LATER_COMMAND
  };
}

void add_commands(Program& program, const std::vector<ListedCommand>& list) {
  for (const ListedCommand& one : list) {
    Command& command = program.add(one.words);
    if (one.declare != nullptr) {
      one.declare(command);
    } else if (one.needs_libtorch) {
      command.refuse("is not in a trireme that was built without LibTorch",
                     "Build it with `make build`.");
    } else {
      command.refuse("is not in this version",
                     "`" + program.name() + " --help` lists the commands that are.");
    }
  }
}

int run_without_libtorch(int argc, char** argv) {
  Program program(argc, argv, "trireme", "Trireme, without LibTorch: collectives and the launcher.",
                  "Start here:\n  trireme show all-reduce ring --ranks 4");
  add_commands(program, listed_commands());
  return program.run();
}

}  // namespace cli

int commands(int argc, char** argv) {
  std::string name = argc > 0 ? argv[0] : "trireme";
  name = name.substr(name.rfind('/') + 1);
  cli::Program program(argc, argv, name, "Trireme's commands that need no LibTorch.",
                       "Start here:\n  trireme show all-reduce ring --ranks 4");
  std::vector<cli::ListedCommand> list = cli::listed_commands();
  std::erase_if(list, [](const cli::ListedCommand& one) { return one.needs_libtorch; });
  cli::add_commands(program, list);
  return program.run();
}

}  // namespace trireme::inline v0
