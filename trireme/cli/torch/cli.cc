#include "trireme/cli/torch/cli.h"

#include <cstdlib>

#include "trireme/cli/command_list.h"
#include "trireme/cli/torch/start_ranks.h"
#include "trireme/job/terminate.h"

namespace trireme::inline v0::cli {

#define COMMAND(words, name)
#define LIGHT_COMMAND(words, name)
#define TORCH_COMMAND(words, name) void declare_##name(Command& command);
#define LATER_COMMAND(word)
#include "trireme/cli/commands.inc"
#undef TORCH_COMMAND

namespace {

// The list, with the commands of this folder.
std::vector<ListedCommand> all_commands() {
  std::vector<ListedCommand> list = listed_commands();
  const auto define = [&](const std::string& words, void (*declare)(Command&)) {
    for (ListedCommand& one : list)
      if (one.words == words) one.declare = declare;
  };
#define TORCH_COMMAND(words, name) define(words, declare_##name);
#include "trireme/cli/commands.inc"
#undef COMMAND
#undef LIGHT_COMMAND
#undef TORCH_COMMAND
#undef LATER_COMMAND
  return list;
}

}  // namespace

int run(int argc, char** argv, const std::string& name) {
  // A process that `train` started.
  if (const char* spec = std::getenv(kWorkerVariable)) {
    job::prepare_process();
    return run_process(rendezvous::resolve_environment().role, argc, argv,
                       train::WorkerSpec::from_text(spec));
  }
  Program program(argc, argv, name, "Trireme trains neural networks on many processors.",
                  "Start here:\n  trireme train configs/gpt-nano.toml --ranks 2");
  add_commands(program, all_commands());
  return program.run();
}

}  // namespace trireme::inline v0::cli
