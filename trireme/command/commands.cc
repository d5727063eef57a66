#include "trireme/command/commands.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/command/command.h"

namespace trireme {
inline namespace v0 {
namespace command {
namespace {

const std::vector<AddCommand> kCommands = {add_show, add_verify, add_bench, add_launch,
                                           add_compare};

void add_missing(CLI::App& app, Invocation& invocation) {
  for (const std::string name : {"train", "plan", "eval", "generate", "inspect", "doctor"}) {
    CLI::App* missing = app.add_subcommand(name)->group("")->allow_extras();
    missing->set_help_flag();
    missing->callback([name, &invocation] {
      invocation.action = [name]() -> int {
        throw ConfigError("this trireme was built without LibTorch, which " + name + " needs",
                          {.operation = name, .advice = "Build it with `make build`."});
      };
    });
  }
  // Below a command that is here.
  CLI::App* show = app.get_subcommand("show");
  for (const std::string name : {"zero3", "overlap", "zero1", "tensor", "context", "expert"}) {
    CLI::App* missing = show->add_subcommand(name)->group("")->allow_extras();
    missing->set_help_flag();
    missing->callback([name, &invocation] {
      invocation.action = [name]() -> int {
        throw ConfigError("this trireme was built without LibTorch, which show " + name + " needs",
                          {.operation = "show", .advice = "Build it with `make build`."});
      };
    });
  }
}

}  // namespace

int run_without_libtorch(int argc, char** argv) {
  std::vector<AddCommand> all = kCommands;
  all.push_back(add_missing);
  return run(argc, argv, "trireme", "Trireme, without LibTorch: collectives and the launcher.",
             "Start here:\n  trireme show all-reduce ring --ranks 4", all);
}

}  // namespace command

int commands(int argc, char** argv) {
  std::string name = argc > 0 ? argv[0] : "trireme";
  name = name.substr(name.rfind('/') + 1);
  return command::run(argc, argv, name, "Trireme's commands that need no LibTorch.",
                      "Start here:\n  " + name + " show all-reduce ring --ranks 4",
                      command::kCommands);
}

}  // namespace v0
}  // namespace trireme
