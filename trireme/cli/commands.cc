#include "trireme/cli/commands.h"

#include <map>
#include <string>
#include <vector>

#include "trireme/cli/command_list.h"

namespace trireme::inline v0 {
namespace cli {

// The files of this folder define them.
Declare declare_inspect, declare_show, declare_show_schedule, declare_show_partition,
    declare_show_gossip, declare_show_tree_sum, declare_show_strategies, declare_verify,
    declare_bench, declare_bench_scale, declare_bench_comm, declare_launch, declare_launch_host,
    declare_launch_coordinator, declare_coordinator, declare_resize, declare_compare,
    declare_completion;

std::vector<ListedCommand> listed_commands(const std::map<std::string, Declare*>& torch) {
  using enum ListedCommand::Kind;
  std::vector<ListedCommand> list = {{"train", Torch},
                                     {"plan", Torch},
                                     {"generate", Torch},
                                     {"eval", Torch},
                                     {"inspect", Light, declare_inspect},
                                     {"convert", Torch},
                                     {"doctor", Torch},
                                     {"show", Light, declare_show},
                                     {"show schedule", Light, declare_show_schedule},
                                     {"show partition", Light, declare_show_partition},
                                     {"show gossip", Light, declare_show_gossip},
                                     {"show tree-sum", Light, declare_show_tree_sum},
                                     {"show strategies", Light, declare_show_strategies},
                                     {"show server", Torch},
                                     {"show zero3", Torch},
                                     {"show overlap", Torch},
                                     {"show zero1", Torch},
                                     {"show tensor", Torch},
                                     {"show context", Torch},
                                     {"show expert", Torch},
                                     {"verify", Light, declare_verify},
                                     {"bench", Core, declare_bench},
                                     {"bench scale", Core, declare_bench_scale},
                                     {"bench comm", Core, declare_bench_comm},
                                     {"bench server", Torch},
                                     {"launch", Light, declare_launch},
                                     {"launch-host", Light, declare_launch_host},
                                     {"launch-coordinator", Light, declare_launch_coordinator},
                                     {"coordinator", Light, declare_coordinator},
                                     {"resize", Light, declare_resize},
                                     {"compare", Light, declare_compare},
                                     {"completion", Core, declare_completion},
                                     {"tokenize", Later}};
  for (ListedCommand& one : list)
    if (const auto found = torch.find(one.words); found != torch.end()) one.declare = found->second;
  return list;
}

void add_commands(Program& program, const std::vector<ListedCommand>& list) {
  for (const ListedCommand& one : list) {
    Command& command = program.add(one.words);
    if (one.declare != nullptr) {
      one.declare(command);
    } else if (one.kind == ListedCommand::Kind::Torch) {
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
  std::erase_if(list, [](const cli::ListedCommand& one) {
    return one.kind == cli::ListedCommand::Kind::Torch;
  });
  cli::add_commands(program, list);
  return program.run();
}

}  // namespace trireme::inline v0
