#include "trireme/command/commands.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/command/command.h"

namespace trireme::inline v0 {
namespace command {
namespace {

const std::vector<AddCommand> kCommands = {add_show, add_verify, add_bench, add_launch,
                                           add_compare};

void add_missing(CLI::App& app, Invocation& invocation) {
  const std::string why = "is not in a trireme that was built without LibTorch";
  const std::string advice = "Build it with `make build`.";
  for (const char* name : {"train", "plan", "eval", "generate", "inspect", "doctor"})
    add_absent(app, invocation, name, why, advice);
  for (const char* name : {"zero3", "overlap", "zero1", "tensor", "context", "expert"})
    add_absent(*app.get_subcommand("show"), invocation, name, why, advice);
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

}  // namespace trireme::inline v0
